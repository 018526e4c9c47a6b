"""`jobplane nodes` and `jobplane top`: what the machines have, what is asked of them, what is used. Added by `app.main.cli`."""

from collections import defaultdict
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.main.commands.access.cluster_access import Cluster, with_cluster
from app.main.commands.access.resources import find_resource, list_all
from app.main.commands.terminal.tables import Output, OutputOption, print_object, print_table, terminal_width
from app.main.commands.view.listing import AllNamespaces

if TYPE_CHECKING:
    from app.client.api import Api

NOT_ENDED = {"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"}
METRICS = "/apis/metrics.k8s.io/v1beta1"
JOB_NAME = "batch.kubernetes.io/job-name"
FORBIDDEN = 403


class TopKind(StrEnum):
    """Sums that `top` shows."""

    JOBS = "jobs"
    PODS = "pods"
    NODES = "nodes"


@with_cluster
def nodes(cluster: Cluster, output: OutputOption = Output.TABLE) -> None:
    """List nodes: their state, and how much of their CPUs, memory, GPUs and pods is asked for."""

    async def work(api: "Api") -> None:
        found = await list_all(api, find_resource("nodes").path(""), {})
        if output in (Output.JSON, Output.YAML):
            print_object({"apiVersion": "v1", "kind": "List", "items": found}, output)
        elif output is Output.NAME:
            for node in found:
                typer.echo(node["metadata"]["name"])
        else:
            _print_nodes(found, await _read_pods_by_node(api), is_wide=output is Output.WIDE)

    cluster.call(work)


async def _read_pods_by_node(api: "Api") -> dict[str, list[dict[str, Any]]] | None:
    """Read the pods that have not ended, by node; None if the user may not list the pods of all namespaces."""
    from app.machinery.errors import ApiError

    try:
        found = await list_all(api, "/api/v1/pods", NOT_ENDED)
    except ApiError as error:
        if error.code != FORBIDDEN:
            raise
        return None
    pods: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for pod in found:
        pods[pod["spec"].get("nodeName", "")].append(pod)
    return pods


def _print_nodes(found: list[dict[str, Any]], pods: dict[str, list[dict[str, Any]]] | None, *, is_wide: bool) -> None:
    if not found:
        typer.echo("there are no nodes: `jobplane token create` prints the command that joins one", err=True)
        return
    header = ["NAME", "STATE", "CPUS", "MEMORY", "GPUS", "PODS", *(("RUNTIME", "ADDRESS") if is_wide else ())]
    rows = [
        _node_row(node, None if pods is None else pods.get(node["metadata"]["name"], []), is_wide=is_wide)
        for node in found
    ]
    print_table(header, rows, None if is_wide else terminal_width())


def _node_row(node: dict[str, Any], pods: list[dict[str, Any]] | None, *, is_wide: bool) -> list[str]:
    from app.main.commands.view.usage import add_up, format_bytes, format_cpus, read_amounts, requests_of

    status = node["status"]
    have, most = read_amounts(status.get("allocatable", {})), status.get("allocatable", {}).get("pods", "-")
    asked = add_up(map(requests_of, pods)) if pods is not None else None
    cells = [
        _of(format_cpus(asked.cpu) if asked else None, format_cpus(have.cpu)),
        _of(format_bytes(asked.memory) if asked else None, format_bytes(have.memory)),
        _of(format_cpus(asked.gpus) if asked else None, format_cpus(have.gpus)) if have.gpus else "-",
        _of(str(len(pods)) if pods is not None else None, most),
    ]
    addresses = [each["address"] for each in status.get("addresses", ()) if each["type"] == "InternalIP"]
    wide = [status.get("nodeInfo", {}).get("containerRuntimeVersion", "-"), ",".join(addresses) or "-"]
    return [node["metadata"]["name"], describe_node(node), *cells, *(wide if is_wide else ())]


def _of(part: str | None, whole: str) -> str:
    return whole if part is None else f"{part}/{whole}"


def describe_node(node: dict[str, Any]) -> str:
    """Return the state of a node in words: ready, not ready (reason), cordoned."""
    ready = next((each for each in node["status"].get("conditions", ()) if each["type"] == "Ready"), None)
    is_ready = ready is not None and ready["status"] == "True"
    reason = f" ({ready['reason']})" if ready and ready.get("reason") else ""
    word = "ready" if is_ready else f"not ready{reason}"
    return f"{word}, cordoned" if node["spec"].get("unschedulable") else word


@with_cluster
def top(
    cluster: Cluster,
    kind: Annotated[TopKind, typer.Argument(help="What to add up.")] = TopKind.JOBS,
    all_namespaces: AllNamespaces = False,
) -> None:
    """Show who uses most CPU and memory now: Jobs, pods or nodes, the greatest first."""

    async def work(api: "Api") -> None:
        if kind is TopKind.NODES:
            rows = await _top_nodes(api)
            header = ["NODE", "CPUS", "CPU%", "MEMORY", "MEMORY%"]
        else:
            rows = await _top_pods(api, "" if all_namespaces else cluster.namespace, by_job=kind is TopKind.JOBS)
            header = ["NAMESPACE", "JOB" if kind is TopKind.JOBS else "POD", "PODS", "CPUS", "ASKED", "MEMORY", "ASKED"]
        if not rows:
            typer.echo(f"no {kind} use anything that was measured yet", err=True)
            return
        print_table(header, rows, terminal_width())

    cluster.call(work)


async def _top_nodes(api: "Api") -> list[list[str]]:
    from app.main.commands.view.usage import format_bytes, format_cpus, format_share, read_amounts

    have = {
        node["metadata"]["name"]: read_amounts(node["status"].get("allocatable", {}))
        for node in await list_all(api, find_resource("nodes").path(""), {})
    }
    used = {
        item["metadata"]["name"]: read_amounts(item["usage"])
        for item in (await api.request_json("GET", f"{METRICS}/nodes"))["items"]
    }
    names = sorted(set(used) & set(have), key=lambda name: (-used[name].cpu, name))
    return [
        [
            name,
            format_cpus(used[name].cpu),
            format_share(used[name].cpu, have[name].cpu),
            format_bytes(used[name].memory),
            format_share(used[name].memory, have[name].memory),
        ]
        for name in names
    ]


async def _top_pods(api: "Api", namespace: str, *, by_job: bool) -> list[list[str]]:
    """Join the pods that have not ended with what was measured of them."""
    from app.main.commands.view.usage import Amounts, add_up, format_bytes, format_cpus, read_amounts, requests_of

    place = f"/namespaces/{namespace}" if namespace else ""
    measured = {
        (item["metadata"]["namespace"], item["metadata"]["name"]): add_up(
            read_amounts(each["usage"]) for each in item["containers"]
        )
        for item in (await api.request_json("GET", f"{METRICS}{place}/pods"))["items"]
    }
    sums: dict[tuple[str, str], tuple[int, Amounts, Amounts]] = {}
    for pod in await list_all(api, f"/api/v1{place}/pods", NOT_ENDED):
        meta = pod["metadata"]
        found = measured.get((meta["namespace"], meta["name"]))
        name = (meta.get("labels") or {}).get(JOB_NAME) if by_job else meta["name"]
        if found is None or name is None:
            continue
        count, used, asked = sums.get((meta["namespace"], name), (0, Amounts(), Amounts()))
        sums[meta["namespace"], name] = (count + 1, used.plus(found), asked.plus(requests_of(pod)))
    ordered = sorted(sums.items(), key=lambda item: (-item[1][1].cpu, -item[1][1].memory, item[0]))
    return [
        [
            where,
            name,
            str(count),
            format_cpus(used.cpu),
            format_cpus(asked.cpu),
            format_bytes(used.memory),
            format_bytes(asked.memory),
        ]
        for (where, name), (count, used, asked) in ordered
    ]

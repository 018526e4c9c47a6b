"""`jobplane list`: Jobs with their state in words, and objects of other kinds as kubectl shows them. Added by `app.main.cli`."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.main.commands.access.cluster_access import Cluster, with_cluster
from app.main.commands.access.resources import JOBS, KINDS, find_resource, list_all, read_table
from app.main.commands.terminal.tables import Output, OutputOption, print_object, print_table, terminal_width

if TYPE_CHECKING:
    from app.client.api import Api
    from app.kinds.batch.job import Job
    from app.main.commands.view.attempts import Attempt

MOST_PENDING = 500  # pods whose reasons are read: enough for one reason for each Job that waits
AllNamespaces = Annotated[bool, typer.Option("--all-namespaces", "-A", help="List objects of all namespaces.")]
Selector = Annotated[
    str, typer.Option("--selector", "-l", help="Labels of the objects, such as team=vision,stage!=test. [default: all]")
]


@with_cluster
def list_objects(
    cluster: Cluster,
    kind: Annotated[str, typer.Argument(help=f"Kind of the objects: {KINDS}.")] = "jobs",
    all_namespaces: AllNamespaces = False,
    selector: Selector = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """List Jobs, oldest first, with their state in words; or objects of another kind."""
    resource = find_resource(kind)
    namespace = "" if all_namespaces else cluster.namespace
    query = {"labelSelector": selector} if selector else {}

    async def work(api: "Api") -> None:
        path = resource.path(namespace)
        if output in (Output.JSON, Output.YAML, Output.NAME):
            _print_documents(await list_all(api, path, query), output)
        elif resource == JOBS:
            await _print_jobs(api, namespace, query, is_wide=output is Output.WIDE)
        else:
            await _print_table(api, path, query, all_namespaces=all_namespaces, is_wide=output is Output.WIDE)

    cluster.call(work)


def _print_documents(items: list[dict[str, Any]], output: Output) -> None:
    if output is Output.NAME:
        for item in items:
            typer.echo(item["metadata"]["name"])
        return
    print_object({"apiVersion": "v1", "kind": "List", "items": items}, output)


async def _print_jobs(api: "Api", namespace: str, query: dict[str, str], *, is_wide: bool) -> None:
    import msgspec

    from app.kinds.batch.job import Job

    jobs = [msgspec.convert(item, Job) for item in await list_all(api, JOBS.path(namespace), query)]
    if not jobs:
        typer.echo(f"no Jobs in {f'namespace {namespace}' if namespace else 'any namespace'}", err=True)
        return
    waiting = await _read_waiting(api, namespace) if any(job.status.active for job in jobs) else {}
    jobs.sort(key=lambda job: (str(job.metadata.creation_timestamp), job.metadata.name))
    header = [
        *(() if namespace else ("NAMESPACE",)),
        "NAME",
        "STATE",
        "DONE",
        "AGE",
        *(("COMMAND",) if is_wide else ()),
    ]
    rows = [_row(job, waiting.get(job.metadata.uid, []), with_namespace=not namespace, is_wide=is_wide) for job in jobs]
    print_table(header, rows, None if is_wide else terminal_width())


async def _read_waiting(api: "Api", namespace: str) -> "dict[str, list[Attempt]]":
    """Read the pods that wait, by the UID of their Job: one request, for all Jobs of the list."""
    import msgspec

    from app.kinds.pod.pod import Pod
    from app.main.commands.view.attempts import attempt_of
    from app.main.commands.view.job_view import CONTROLLER_UID, pods_path

    path = pods_path(namespace) if namespace else "/api/v1/pods"
    query = {"fieldSelector": "status.phase=Pending", "labelSelector": CONTROLLER_UID, "limit": str(MOST_PENDING)}
    found: dict[str, list[Attempt]] = {}
    for item in (await api.request_json("GET", path, params=query))["items"]:
        pod = msgspec.convert(item, Pod)
        found.setdefault(pod.metadata.labels[CONTROLLER_UID], []).append(attempt_of(pod))
    return found


def _row(job: "Job", waiting: "list[Attempt]", *, with_namespace: bool, is_wide: bool) -> list[str]:
    from app.machinery.durations import age
    from app.main.cli_process import now
    from app.main.commands.view.job_words import Reader, describe, describe_done, has_many, state

    reader = Reader(now())
    attempts = waiting if not has_many(job) or state(job) == "Pending" else []
    cells = [
        job.metadata.name,
        describe(job, attempts, reader),
        describe_done(job),
        age(job.metadata.creation_timestamp, reader.now),
    ]
    return [
        *((job.metadata.namespace,) if with_namespace else ()),
        *cells,
        *((describe_command(job),) if is_wide else ()),
    ]


def describe_command(job: "Job") -> str:
    """Return what the Job's first container runs, as one would type it."""
    import shlex

    containers = job.spec.template.spec.containers
    return shlex.join((*containers[0].command, *containers[0].args)) if containers else ""


async def _print_table(api: "Api", path: str, query: dict[str, str], *, all_namespaces: bool, is_wide: bool) -> None:
    columns, rows = await read_table(api, path, query)
    if not rows:
        typer.echo("there are none", err=True)
        return
    shown = [place for place, column in enumerate(columns) if is_wide or not column.get("priority")]
    header = [columns[place]["name"].upper() for place in shown]
    cells = [[str(row["cells"][place]) for place in shown] for row in rows]
    if all_namespaces and rows[0]["object"]["metadata"].get("namespace"):
        header = ["NAMESPACE", *header]
        cells = [[row["object"]["metadata"]["namespace"], *line] for row, line in zip(rows, cells, strict=True)]
    print_table(header, cells, None if is_wide else terminal_width())

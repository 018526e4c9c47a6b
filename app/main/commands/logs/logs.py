"""`jobplane logs`: print logs of pods and Jobs, as they come, and also once they are gone. Added by `app.main.cli`."""

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.main.commands.access.cluster_access import NOT_FOUND, Cluster, with_cluster
from app.main.commands.logs.log_choice import Following, choose, select
from app.main.commands.terminal import completion

if TYPE_CHECKING:
    from app.client.api import Api

_POD, _JOB = ("pod", "pods"), ("job", "jobs", "job.batch")


@with_cluster
def logs(
    cluster: Cluster,
    what: Annotated[
        str,
        typer.Argument(
            metavar="JOB|POD",
            help="Name of a pod or Job; also job/NAME, pod/NAME.",
            autocompletion=completion.jobs,
        ),
    ],
    container: Annotated[
        str | None,
        typer.Option("--container", "-c", help="Name of the container. [default: the only one; with --all, all]"),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the pod, or the Job, has ended.")] = False,
    index: Annotated[int | None, typer.Option(help="Index of an array. [default: all]", min=0)] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Print every pod, container and run, and name them in each line.")
    ] = False,
    previous: Annotated[bool, typer.Option("--previous", "-p", help="Print the run before the last one.")] = False,
    tail: Annotated[int | None, typer.Option(help="Number of last lines to print. [default: all]")] = None,
    since_time: Annotated[
        str | None,
        typer.Option(help="Print only lines since this time, such as 2026-01-31T12:00:00Z. [default: all]"),
    ] = None,
    timestamps: Annotated[bool, typer.Option(help="Print the time of each line.")] = False,
) -> None:
    """Print logs of containers, also of pods that were deleted. Logs are kept for a week after the container has ended.

    Of a Job, the pod that started last is printed; of an array, that of each index, and lines begin with the index.
    """
    given = {"tailLines": tail, "sinceTime": since_time, "timestamps": "true" if timestamps else None}
    query = {name: str(value) for name, value in given.items() if value is not None}
    kinds, name = _parse(what)

    async def work(api: "Api") -> None:
        if follow and await _follow(api, cluster.namespace, kinds, name, Following(index, container or "", query)):
            return
        from app.main.commands.logs.log_streams import kept_logs_path

        place = kept_logs_path(cluster.namespace)
        found = select(await _find_logs(api, place, kinds, name), container, index)
        if not found:
            typer.echo(f"no logs of {what} in namespace {cluster.namespace}", err=True)
            raise typer.Exit(1)
        if everything:
            await _print_all(api, place, found, query)
            return
        chosen = choose(found, container, previous=previous)
        if len(chosen) == 1 and len({each["metadata"]["uid"] for each in found}) > 1:
            typer.echo(f"several pods match: printing {chosen[0].pod}; --all prints all", err=True)
        for each in chosen:
            await _print(api, f"{place}/{each.pod}", {**query, **each.query}, each.prefix.encode())

    cluster.call(work)


def _parse(what: str) -> tuple[tuple[str, ...], str]:
    """Return the kinds that a name may be of, in the order in which they are looked for, and the name."""
    kind, _, name = what.rpartition("/")
    if kind in _JOB:
        return ("job",), name
    if kind in ("", *_POD):
        return ("pod",) if kind else ("pod", "job"), name
    raise typer.BadParameter(f"{what} is not JOB, POD, job/NAME or pod/NAME")


async def _follow(api: "Api", namespace: str, kinds: tuple[str, ...], name: str, how: Following) -> bool:
    """Print logs as they come, until what writes them has ended. Returns False if neither pod nor Job is there any more."""
    from app.kinds.batch.job import Job
    from app.kinds.pod.pod import Pod
    from app.machinery.errors import ApiError
    from app.main.commands.jobs.waiting import follow_logs, follow_pod
    from app.main.commands.view.job_view import jobs_path, pods_path

    for kind in kinds:
        try:
            if kind == "pod":
                await follow_pod(api, await api.read(pods_path(namespace, name), Pod), how)
            else:
                await follow_logs(api, await api.read(jobs_path(namespace, name), Job), how)
        except ApiError as error:
            if error.code != NOT_FOUND:
                raise
        else:
            return True
    return False


async def _find_logs(api: "Api", place: str, kinds: tuple[str, ...], name: str) -> list[dict[str, Any]]:
    """List the logs of the pods of a name or, if there are none, of a Job's pods."""
    from app.main.commands.access.resources import list_all

    for kind in kinds:
        if found := await list_all(api, place, {kind: name}):
            return found
    return []


async def _print_all(api: "Api", place: str, found: list[dict[str, Any]], query: dict[str, str]) -> None:
    for each in sorted(found, key=lambda each: (each["startedAt"], each["metadata"]["name"], each["attempt"])):
        meta = each["metadata"]
        which = {"uid": meta["uid"], "container": each["container"], "attempt": str(each["attempt"])}
        run = f"#{each['attempt']}" if each["attempt"] else ""
        await _print(
            api, f"{place}/{meta['name']}", {**query, **which}, f"[{meta['name']}/{each['container']}{run}] ".encode()
        )


async def _print(api: "Api", path: str, query: dict[str, str], prefix: bytes = b"") -> None:
    """Print a log as it arrives; with a prefix, line by line."""
    rest = b""
    async with api.stream(path, query) as pieces:
        async for piece in pieces:
            if not prefix:
                sys.stdout.buffer.write(piece)
                continue
            *lines, rest = (rest + piece).split(b"\n")
            sys.stdout.buffer.writelines(prefix + line + b"\n" for line in lines)
    if rest:
        sys.stdout.buffer.write(prefix + rest + b"\n")
    sys.stdout.flush()

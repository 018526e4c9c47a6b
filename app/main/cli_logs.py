"""`jobplane logs`: print logs of containers, also of pods that are gone. Added by `app.main.cli`."""

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.main.cli_options import call_api, with_api_options
from app.settings import Settings

if TYPE_CHECKING:
    from app.client.api import Api

_BASE = "/apis/logs.jobplane.dev/v1/namespaces"


@with_api_options
def logs(
    made: Settings,
    what: Annotated[str, typer.Argument(metavar="POD|job/NAME", help="Name of a pod, or job/ and the name of a Job.")],
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Namespace of the pod or Job.")] = "default",
    container: Annotated[
        str | None,
        typer.Option("--container", "-c", help="Name of the container. [default: the only one; with --all, all]"),
    ] = None,
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

    If several pods match, the one that started last is printed; --all prints all.
    """
    given = {"tailLines": tail, "sinceTime": since_time, "timestamps": "true" if timestamps else None}
    query = {name: str(value) for name, value in given.items() if value is not None}
    place = f"{_BASE}/{namespace}/logs"

    async def work(api: "Api") -> None:
        found = await _find_logs(api, place, what)
        if container:
            found = [each for each in found if each["container"] == container]
        if not found:
            typer.echo(f"no logs of {what} in namespace {namespace}", err=True)
            raise typer.Exit(1)
        if everything:
            await _print_all(api, place, found, query)
            return
        newest = max(found, key=lambda each: each["startedAt"])["metadata"]
        if len({each["metadata"]["uid"] for each in found}) > 1:
            typer.echo(f"several pods match: printing {newest['name']}; --all prints all", err=True)
        which = {"container": container} if container else {}
        which |= {"previous": "true"} if previous else {}
        await _print(api, f"{place}/{newest['name']}", {**query, **which, "uid": newest["uid"]})

    call_api(made, work)


async def _find_logs(api: "Api", place: str, what: str) -> list[dict[str, Any]]:
    """List the logs of the pods of a name, or of a Job's pods."""
    kind, _, name = what.rpartition("/")
    if kind not in ("", "pod", "pods", "job", "jobs", "job.batch"):
        raise typer.BadParameter(f"{what} is not POD or job/NAME")
    query = {"job" if kind.startswith("job") else "pod": name}
    found: list[dict[str, Any]] = []
    while True:
        page = await api.request_json("GET", place, params=query)
        found += page["items"]
        if "continue" not in page["metadata"]:
            return found
        query["continue"] = page["metadata"]["continue"]


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

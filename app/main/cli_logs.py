"""`jobplane logs`: what containers wrote, also of pods that are gone. Added to the command line by `app.main.cli`."""

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.main.cli_options import calling, of_an_api
from app.settings import Settings

if TYPE_CHECKING:
    from app.client.api import Api

_BASE = "/apis/logs.jobplane.dev/v1/namespaces"


@of_an_api
def logs(
    made: Settings,
    what: Annotated[str, typer.Argument(metavar="POD|job/NAME", help="A pod's name, or job/ and a Job's.")],
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Where it is or was.")] = "default",
    container: Annotated[str | None, typer.Option("--container", "-c", help="Which one, if there are several.")] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Every pod, container and run, each line with where it is from.")
    ] = False,
    previous: Annotated[bool, typer.Option("--previous", "-p", help="The run before the last one.")] = False,
    tail: Annotated[int | None, typer.Option(help="Only the last so many lines.")] = None,
    since_time: Annotated[
        str | None, typer.Option(help="Only lines from this moment on: 2026-01-31T12:00:00Z.")
    ] = None,
    timestamps: Annotated[bool, typer.Option(help="Each line with its time.")] = False,
) -> None:
    """Print what containers wrote, for a week after they ended, whether their pods are still there or not.

    Of several pods of a name or a Job, without --all the last one that began.
    """
    given = {"tailLines": tail, "sinceTime": since_time, "timestamps": "true" if timestamps else None}
    query = {name: str(value) for name, value in given.items() if value is not None}
    place = f"{_BASE}/{namespace}/logs"

    async def work(api: "Api") -> None:
        found = await _found(api, place, what)
        if container:
            found = [each for each in found if each["container"] == container]
        if not found:
            typer.echo(f"no logs of {what} in the namespace {namespace}", err=True)
            raise typer.Exit(1)
        if everything:
            await _print_all(api, place, found, query)
            return
        newest = max(found, key=lambda each: each["startedAt"])["metadata"]
        if len({each["metadata"]["uid"] for each in found}) > 1:
            typer.echo(f"of several pods, this is {newest['name']}; --all shows all", err=True)
        which = {"container": container} if container else {}
        which |= {"previous": "true"} if previous else {}
        await _print(api, f"{place}/{newest['name']}", {**query, **which, "uid": newest["uid"]})

    calling(made, work)


async def _found(api: "Api", place: str, what: str) -> list[dict[str, Any]]:
    """Every log of the pods of a name, or of a Job's pods."""
    kind, _, name = what.rpartition("/")
    if kind not in ("", "pod", "pods", "job", "jobs", "job.batch"):
        raise typer.BadParameter(f"{what} is neither POD nor job/NAME")
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
    """As it comes; with a prefix, line by line."""
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

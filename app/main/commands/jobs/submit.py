"""`jobplane submit`: create or apply the objects of a file, and wait for its Jobs if asked. Added by `app.main.cli`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.main.cli_errors import CommandError
from app.main.commands.access.cluster_access import Cluster, with_cluster

if TYPE_CHECKING:
    from app.client.api import Api

CONFLICT = 409
APPLY = "application/apply-patch+yaml"
FIELD_MANAGER = "jobplane"


@with_cluster
def submit(
    cluster: Cluster,
    file: Annotated[
        str, typer.Argument(metavar="FILE|-", help="YAML or JSON of objects of any kind, or a script with #!.")
    ],
    apply: Annotated[bool, typer.Option("--apply", help="Change objects that exist to what the file says.")] = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait for the Jobs of the file, print their logs, end with their code.")
    ] = False,
) -> None:
    """Submit a file: create its objects, or apply them with --apply. A script becomes a Job that runs it."""
    from app.main.commands.jobs.manifests import read_manifest

    documents = read_manifest(_read(file), file)

    async def work(api: "Api") -> int:
        made = [await _submit(api, cluster.namespace, each, apply=apply) for each in documents]
        return await _wait(api, made) if wait else 0

    if code := cluster.call(work):
        raise typer.Exit(code)


def _read(file: str) -> str:
    if file == "-":
        return sys.stdin.read()
    try:
        return Path(file).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise CommandError(f"{file} does not exist: pass another path") from None
    except UnicodeDecodeError:
        raise CommandError(f"{file} is not a text file: pass another path") from None


async def _submit(api: "Api", namespace: str, document: dict[str, Any], *, apply: bool) -> dict[str, Any]:
    """Create or apply one object, and print its name."""
    from app.machinery.errors import ApiError
    from app.main.commands.access.resources import find_by_kind

    resource = await find_by_kind(api, document["apiVersion"], document["kind"])
    metadata = document["metadata"]
    place, name = metadata.get("namespace") or namespace, metadata.get("name", "")
    try:
        if apply:
            if not name:
                raise CommandError(f"a {document['kind']} of the file has no name, and --apply needs one")
            how = {"fieldManager": FIELD_MANAGER, "force": "true"}
            found = await api.request_json(
                "PATCH", resource.path(place, name), document, params=how, content_type=APPLY
            )
        else:
            found = await api.request_json("POST", resource.path(place), document)
    except ApiError as error:
        if error.code == CONFLICT and not apply:
            raise CommandError(
                f"{error.message}: pass --apply to change it, or `jobplane cancel {name}` first"
            ) from error
        raise
    typer.echo(
        f"{document['kind'].lower()} {found['metadata']['name']} is {'applied' if apply else 'submitted'}", err=True
    )
    return dict(found)


async def _wait(api: "Api", documents: list[dict[str, Any]]) -> int:
    """Wait for the Jobs, one after the other in the order of the file. Returns the first exit code that is not 0."""
    import msgspec

    from app.kinds.batch.job import Job
    from app.main.commands.jobs.waiting import wait_for

    jobs = [msgspec.convert(each, Job) for each in documents if each["kind"] == "Job"]
    if not jobs:
        raise CommandError("the file holds no Job to wait for")
    codes = [await wait_for(api, job, logs=True) for job in jobs]
    return next(filter(None, codes), 0)

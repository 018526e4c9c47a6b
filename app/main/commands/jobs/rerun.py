"""`jobplane rerun`: a Job once more, as it was or with edits, also one that was deleted. Added by `app.main.cli`."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.main.cli_errors import CommandError
from app.main.commands.access.cluster_access import Cluster, with_cluster
from app.main.commands.terminal import completion

if TYPE_CHECKING:
    from app.client.api import Api


@with_cluster
def rerun(
    cluster: Cluster,
    name: Annotated[
        str, typer.Argument(metavar="JOB|UID", help="Job, also one that was deleted.", autocompletion=completion.jobs)
    ],
    edits: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="Edit, such as memory=8Gi, image=x:2, env.LR=0.1 or spec.backoffLimit=3; can be repeated."
        ),
    ] = None,
    patch: Annotated[str, typer.Option(help="Edit as a strategic merge patch of the Job, in YAML or JSON.")] = "",
    new_name: Annotated[str, typer.Option("--name", help="Name of the new Job. [default: made of the old one]")] = "",
    wait: Annotated[
        bool, typer.Option("--wait/--detach", help="Wait for the Job, or print its name and end at once.")
    ] = True,
) -> None:
    """Run a Job again, with all that it had or with edits. The new Job says which one it repeats."""
    document = _read_patch(patch)

    async def work(api: "Api") -> int:
        from app.kinds.batch.job import Job
        from app.main.commands.jobs.waiting import wait_for

        job = await _rerun(api, cluster.namespace, name, document, edits or [], new_name)
        if not wait:
            typer.echo(job["metadata"]["name"])
            return 0
        import msgspec

        return await wait_for(api, msgspec.convert(job, Job), logs=True)

    if code := cluster.call(work):
        raise typer.Exit(code)


def _read_patch(text: str) -> dict[str, Any]:
    import yaml

    try:
        found = yaml.safe_load(text) if text else {}
    except yaml.YAMLError:
        found = None
    if not isinstance(found, dict):
        raise CommandError("--patch is not an object in YAML or JSON")
    return found


async def _rerun(
    api: "Api", namespace: str, name: str, patch: dict[str, Any], edits: list[str], new_name: str
) -> dict[str, Any]:
    from app.main.commands.jobs.job_patch import make_patch
    from app.main.commands.view.records import find_uid, records_path

    uid = await find_uid(api, namespace, name)
    body: dict[str, Any] = {"name": new_name} if new_name else {}
    if edits:
        if patch:
            raise CommandError("pass --set or --patch, not both")
        record = await api.request_json("GET", records_path(namespace, uid))
        patch = make_patch(edits, record["spec"]["template"]["spec"]["containers"][0]["name"])
    if patch:
        body["patch"] = patch
    return dict(await api.request_json("POST", f"{records_path(namespace, uid)}/rerun", body))

"""`jobplane cancel`: end Jobs and delete them. Added by `app.main.cli`."""

from typing import TYPE_CHECKING, Annotated

import typer

from app.main.cli_errors import CommandError
from app.main.commands.access.cluster_access import Cluster, with_cluster
from app.main.commands.access.resources import JOBS, list_all
from app.main.commands.terminal import completion

if TYPE_CHECKING:
    from app.client.api import Api


@with_cluster
def cancel(
    cluster: Cluster,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="JOB…", help="Names of the Jobs.", autocompletion=completion.jobs)
    ] = None,
    selector: Annotated[
        str, typer.Option("--selector", "-l", help="Cancel the Jobs with these labels, instead of names.")
    ] = "",
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the Jobs and their pods are gone.")] = False,
) -> None:
    """Cancel Jobs: their pods are stopped, and the Jobs are deleted. Their logs and their history stay."""
    if bool(names) == bool(selector):
        raise CommandError("pass the names of Jobs, or -l LABELS")
    if names and any("/" in each.removeprefix("job/") for each in names):
        raise CommandError("only Jobs can be cancelled: pass their names")

    async def work(api: "Api") -> None:
        chosen = [each.removeprefix("job/") for each in names or ()]
        if selector:
            found = await list_all(api, JOBS.path(cluster.namespace), {"labelSelector": selector})
            chosen = [item["metadata"]["name"] for item in found]
        for name in chosen:
            await _cancel(api, cluster.namespace, name, wait=wait)
        if not chosen:
            typer.echo(f"no Job has the labels {selector}", err=True)

    cluster.call(work)


async def _cancel(api: "Api", namespace: str, name: str, *, wait: bool) -> None:
    options = {"propagationPolicy": "Foreground" if wait else "Background"}
    await api.request("DELETE", JOBS.path(namespace, name), options)
    if wait:
        await _wait_until_gone(api, namespace, name)
    typer.echo(f"job {name} is cancelled")


async def _wait_until_gone(api: "Api", namespace: str, name: str) -> None:
    from contextlib import aclosing

    from app.kinds.batch.job import Job

    query = {"fieldSelector": f"metadata.name={name}"}
    async with aclosing(api.list_and_watch(JOBS.path(namespace), Job, query)) as events:
        async for event in events:
            if event.type == "DELETED" or (event.type == "LISTED" and not event.items):
                return

"""`jobplane watch`: one Job until it ends, or every change of all Jobs. Added by `app.main.cli`."""

from typing import TYPE_CHECKING, Annotated

import typer

from app.main.commands.access.cluster_access import Cluster, with_cluster
from app.main.commands.access.resources import JOBS, parse_name
from app.main.commands.terminal import completion
from app.main.commands.view.listing import AllNamespaces, Selector

if TYPE_CHECKING:
    from app.client.api import Api


@with_cluster
def watch(
    cluster: Cluster,
    name: Annotated[
        str,
        typer.Argument(
            metavar="[JOB]",
            help="Job to wait for. [default: all Jobs, until Ctrl-C]",
            autocompletion=completion.jobs,
            show_default=False,
        ),
    ] = "",
    all_namespaces: AllNamespaces = False,
    selector: Selector = "",
) -> None:
    """Watch a Job until it ends, and end with its exit code; or print a line for each change of any Job."""

    async def work(api: "Api") -> int:
        if not name:
            await _print_changes(api, "" if all_namespaces else cluster.namespace, selector)
            return 0
        from app.kinds.batch.job import Job
        from app.main.commands.jobs.waiting import watch_job

        return await watch_job(api, await api.read(JOBS.path(cluster.namespace, parse_name(name)[1]), Job))

    if code := cluster.call(work):
        raise typer.Exit(code)


async def _print_changes(api: "Api", namespace: str, selector: str) -> None:
    """Print each Job whose words change, for ever."""
    from contextlib import aclosing

    from app.kinds.batch.job import Job
    from app.main.cli_process import now
    from app.main.commands.view.job_words import Reader, describe

    told: dict[str, str] = {}
    query = {"labelSelector": selector} if selector else {}
    async with aclosing(api.list_and_watch(JOBS.path(namespace), Job, query)) as events:
        async for event in events:
            if event.type == "LISTED":
                told = {uid: words for uid, words in told.items() if uid in {job.metadata.uid for job in event.items}}
            for job in (*event.items, *([event.object] if event.object else ())):
                reader = Reader(now())
                words = "is gone" if event.type == "DELETED" else describe(job, (), reader)
                if told.get(job.metadata.uid) != words:
                    told[job.metadata.uid] = words
                    where = "" if namespace else f"{job.metadata.namespace}/"
                    typer.echo(f"{reader.time_of(reader.now)} {where}{job.metadata.name}: {words}")
            if event.type == "DELETED" and event.object:
                told.pop(event.object.metadata.uid, None)

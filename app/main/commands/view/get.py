"""`jobplane get`: one Job with its attempts and events in words, or one object as data. Added by `app.main.cli`."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.main.cli_errors import CommandError
from app.main.commands.access.cluster_access import Cluster, with_cluster
from app.main.commands.access.resources import JOBS, list_all, parse_name
from app.main.commands.terminal import completion
from app.main.commands.terminal.tables import Output, OutputOption, print_object, print_table, terminal_width

if TYPE_CHECKING:
    from app.client.api import Api

MOST_ATTEMPTS, MOST_EVENTS = 20, 10


@with_cluster
def get(
    cluster: Cluster,
    name: Annotated[
        str,
        typer.Argument(
            metavar="JOB|KIND/NAME", help="Job, or another object such as pod/x.", autocompletion=completion.jobs
        ),
    ],
    output: OutputOption = Output.TABLE,
) -> None:
    """Show a Job: its state in words, its attempts, its newest events. With -o yaml or json: any object, as it is."""
    resource, name = parse_name(name)

    async def work(api: "Api") -> None:
        found = await api.request_json("GET", resource.path(cluster.namespace, name))
        if output in (Output.JSON, Output.YAML):
            print_object(found, output)
        elif output is Output.NAME:
            typer.echo(found["metadata"]["name"])
        elif resource == JOBS:
            await _print_job(api, found, is_wide=output is Output.WIDE)
        else:
            raise CommandError(f"pass -o yaml or -o json for {resource.plural}: only Jobs are shown in words")

    cluster.call(work)


async def _print_job(api: "Api", document: dict[str, Any], *, is_wide: bool) -> None:
    import msgspec

    from app.kinds.batch.job import Job
    from app.main.cli_process import now
    from app.main.commands.view.job_view import list_attempts
    from app.main.commands.view.job_words import Reader
    from app.main.commands.view.sheets import attempt_rows, event_rows, job_lines

    job, reader = msgspec.convert(document, Job), Reader(now())
    attempts = await list_attempts(api, job)
    width = None if is_wide else terminal_width()
    for label, text in job_lines(job, attempts, reader):
        typer.echo(f"{label + ':':<11}{text}")
    if attempts:
        header, *rows = attempt_rows(attempts, reader, MOST_ATTEMPTS)
        typer.echo("")
        print_table(header, rows, width)
    events = await _read_events(api, job.metadata.namespace, job.metadata.uid)
    if events:
        header, *rows = event_rows(events[-MOST_EVENTS:], reader)
        typer.echo("")
        print_table(header, rows, width)


async def _read_events(api: "Api", namespace: str, uid: str) -> list[dict[str, Any]]:
    """Read the events of an object, oldest first."""
    found = await list_all(
        api, f"/api/v1/namespaces/{namespace}/events", {"fieldSelector": f"involvedObject.uid={uid}"}
    )
    return sorted(found, key=lambda event: str(event.get("lastTimestamp") or event["metadata"]["creationTimestamp"]))

"""`jobplane history`: Jobs that have ended, also those that were deleted. Added by `app.main.cli`."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.main.commands.access.cluster_access import Cluster, with_cluster
from app.main.commands.terminal import completion
from app.main.commands.terminal.tables import Output, OutputOption, print_object, print_table, terminal_width
from app.main.commands.view.listing import AllNamespaces, Selector

if TYPE_CHECKING:
    from app.client.api import Api
    from app.plans.jobs.job_record import JobRecord

MOST_ATTEMPTS, MOST_RESTARTS, MOST_EVENTS = 100, 20, 20
_HEADER = ["NAME", "STATE", "DONE", "ATTEMPTS", "ENDED"]


@with_cluster
def history(
    cluster: Cluster,
    name: Annotated[
        str,
        typer.Argument(
            metavar="[JOB|UID]",
            help="Job to show in full. [default: list all]",
            autocompletion=completion.jobs,
            show_default=False,
        ),
    ] = "",
    all_namespaces: AllNamespaces = False,
    selector: Selector = "",
    result: Annotated[
        str, typer.Option(help="Only Jobs that ended so: Complete, Failed, Deleted. [default: all]")
    ] = "",
    limit: Annotated[int, typer.Option(help="At most so many Jobs.", min=1)] = 50,
    output: OutputOption = Output.TABLE,
) -> None:
    """List Jobs that have ended, newest first, also deleted ones; or show one with its attempts, results and events."""

    async def work(api: "Api") -> None:
        if name:
            await _print_record(api, cluster.namespace, name, output)
            return
        from app.main.commands.view.records import list_records

        query = {name: value for name, value in (("result", result), ("labelSelector", selector)) if value}
        found = await list_records(api, "" if all_namespaces else cluster.namespace, query, limit)
        _print_records(found, output, with_namespace=all_namespaces)

    cluster.call(work)


def _print_records(found: list[dict[str, Any]], output: Output, *, with_namespace: bool) -> None:
    if output in (Output.JSON, Output.YAML):
        print_object({"apiVersion": "v1", "kind": "List", "items": found}, output)
        return
    if output is Output.NAME:
        for item in found:
            typer.echo(item["metadata"]["name"])
        return
    if not found:
        typer.echo("no Job has ended yet", err=True)
        return
    import msgspec

    from app.plans.jobs.job_record import JobRecord

    is_wide = output is Output.WIDE
    header = [*(("NAMESPACE",) if with_namespace else ()), *_HEADER, *(("UID", "COMMAND") if is_wide else ())]
    rows = [_row(msgspec.convert(item, JobRecord), with_namespace=with_namespace, is_wide=is_wide) for item in found]
    print_table(header, rows, None if is_wide else terminal_width())


def _row(record: "JobRecord", *, with_namespace: bool, is_wide: bool) -> list[str]:
    from app.main.cli_process import now
    from app.main.commands.view.job_words import Reader, describe_done
    from app.main.commands.view.listing import describe_command
    from app.main.commands.view.records import job_of

    reader = Reader(now())
    return [
        *((record.metadata.namespace,) if with_namespace else ()),
        record.metadata.name,
        _describe(record, reader),
        describe_done(job_of(record)),
        str(len(record.attempts) + record.attempts_omitted),
        reader.time_of(record.end_time) if record.end_time else "-",
        *((record.metadata.uid, describe_command(job_of(record))) if is_wide else ()),
    ]


def _describe(record: "JobRecord", reader: Any) -> str:
    from app.main.commands.view.job_words import describe
    from app.main.commands.view.records import job_of

    if record.result == "Deleted":
        return "deleted before it ended"
    return describe(job_of(record), record.attempts, reader)


async def _print_record(api: "Api", namespace: str, name: str, output: Output) -> None:
    import msgspec

    from app.main.cli_process import now
    from app.main.commands.view.job_words import Reader
    from app.main.commands.view.records import find_uid, job_of, records_path
    from app.main.commands.view.sheets import attempt_rows, event_rows, job_lines, output_lines, restart_rows
    from app.plans.jobs.job_record import JobRecord

    document = await api.request_json("GET", records_path(namespace, await find_uid(api, namespace, name)))
    if output in (Output.JSON, Output.YAML):
        print_object(document, output)
        return
    record, reader = msgspec.convert(document, JobRecord), Reader(now())
    lines = dict(job_lines(job_of(record), record.attempts, reader)) | {
        "State": _describe(record, reader),
        "UID": record.metadata.uid,
    }
    if record.deletion_time:
        lines["Deleted"] = reader.time_of(record.deletion_time)
    if record.rerun_of:
        lines["Rerun of"] = record.rerun_of
    for label, text in (*lines.items(), *output_lines(record.attempts)):
        typer.echo(f"{label + ':':<11}{text}")
    width = None if output is Output.WIDE else terminal_width()
    for rows in (
        attempt_rows(record.attempts, reader, MOST_ATTEMPTS),
        restart_rows(record.attempts, reader, MOST_RESTARTS),
        event_rows((record.events or [])[-MOST_EVENTS:], reader),
    ):
        if len(rows) > 1:
            typer.echo("")
            print_table(rows[0], rows[1:], width)
    if record.attempts_omitted:
        typer.echo(f"{record.attempts_omitted} more attempts are not kept", err=True)

"""`jobplane run`: submit a Job, show how it fares and what it prints, and end with its exit code. Added by `app.main.cli`."""

import os
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from app.main.cli_errors import CommandError
from app.main.commands.access.cluster_access import Cluster, OnInterrupt, with_cluster
from app.main.commands.terminal import completion

_COMMAND = "jobplane.command"


class RunCommand(TyperCommand):
    """Keeps what follows `--` as the command of the Job, whatever it looks like."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        place = args.index("--") if "--" in args else len(args)
        ctx.meta[_COMMAND] = args[place + 1 :]
        rest: list[str] = super().parse_args(ctx, args[:place])
        return rest


@with_cluster
def run(
    cluster: Cluster,
    context: typer.Context,
    image: Annotated[
        str,
        typer.Argument(
            metavar="IMAGE [-- COMMAND…]", help="Image; nodes that run plain processes need none.", show_default=False
        ),
    ] = "",
    name: Annotated[str, typer.Option(help="Name of the Job. [default: made of the command]")] = "",
    array: Annotated[
        str,
        typer.Option(
            help="Run the command once for each index: 0-99, or 0-99%10 (ten at a time). It reads JOB_COMPLETION_INDEX."
        ),
    ] = "",
    cpus: Annotated[str, typer.Option(help="CPUs that each run needs, such as 2, 0.5 or 500m.")] = "",
    memory: Annotated[str, typer.Option(help="Memory of each run, and its limit, such as 512Mi or 4Gi.")] = "",
    gpus: Annotated[int, typer.Option(help="GPUs of each run (nvidia.com/gpu).", min=0)] = 0,
    env: Annotated[
        list[str] | None,
        typer.Option("--env", "-e", help="Variable, NAME=VALUE, or NAME for its value here; can be repeated."),
    ] = None,
    after: Annotated[
        list[str] | None,
        typer.Option(
            help="Start after this Job: NAME, NAME:ok, NAME:failed or NAME:any; can be repeated.",
            autocompletion=completion.jobs,
        ),
    ] = None,
    retries: Annotated[
        int, typer.Option(help="How often a run that fails is tried again; of an array, each index.", min=0)
    ] = 0,
    timeout: Annotated[
        str, typer.Option(help="Time after which the Job is stopped and fails, such as 90s or 8h. [default: none]")
    ] = "",
    label: Annotated[
        list[str] | None, typer.Option("--label", "-l", help="Label of the Job, NAME=VALUE; can be repeated.")
    ] = None,
    queue: Annotated[str, typer.Option(help="LocalQueue that must be in force in the namespace.")] = "",
    priority: Annotated[str, typer.Option(help="PriorityClass of the pods.")] = "",
    workdir: Annotated[str, typer.Option("--workdir", "-w", help="Working directory of the command.")] = "",
    ttl: Annotated[
        str, typer.Option(help="Time after which the ended Job is deleted, such as 1h. [default: never]")
    ] = "",
    wait: Annotated[
        bool, typer.Option("--wait/--detach", help="Wait for the Job, or print its name and end at once.")
    ] = True,
    logs: Annotated[bool, typer.Option("--logs/--no-logs", help="Print what the Job prints while waiting.")] = True,
    on_interrupt: Annotated[
        OnInterrupt, typer.Option(help="What Ctrl-C does: leave the Job running, or cancel it.")
    ] = OnInterrupt.DETACH,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the Job as YAML, and submit nothing.")] = False,
) -> None:
    """Submit a command as a Job, print its output, and end with its exit code.

    \b
    jobplane run -- python train.py --epochs 3
    jobplane run python:3.12 --cpus 2 --memory 4Gi -- python -c 'print(1)'
    jobplane run --array 0-99%10 -- sh -c 'echo $JOB_COMPLETION_INDEX'

    Exit codes: that of the command; 1 if the Job failed otherwise (deadline, cancelled); 130 after Ctrl-C.
    """
    from app.main.commands.jobs.job_template import RunOptions, make_job

    command = context.meta[_COMMAND]
    if not image and not command:
        raise CommandError("nothing to run: jobplane run IMAGE, or jobplane run -- COMMAND")
    options = RunOptions(
        image, command, name, array, cpus, memory, gpus, env or (), after or (), retries, timeout, label or (), queue,
        priority, workdir, ttl,
    )  # fmt: skip
    document = make_job(options, os.environ)
    if dry_run:
        import yaml

        typer.echo(yaml.safe_dump(document, sort_keys=False, allow_unicode=True), nl=False)
        return
    from app.main.commands.jobs.waiting import submit_and_wait

    code = cluster.call(
        lambda api: submit_and_wait(
            api, cluster.namespace, document, options, wait=wait, logs=logs, on_interrupt=on_interrupt
        )
    )
    if code:
        raise typer.Exit(code)

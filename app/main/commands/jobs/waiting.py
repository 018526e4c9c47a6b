"""The work of `jobplane run` after its options are read: submit, wait, follow the logs. Called by `run`, `watch`, `submit`.

The Job is watched, not polled. It ends when the Job has ended and every log is printed, or with Ctrl-C.
"""

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import msgspec
import typer

from app.kinds.batch.job import Job
from app.kinds.pod.pod import Pod
from app.machinery.errors import ApiError
from app.main.cli_errors import CommandError
from app.main.cli_process import now
from app.main.commands.access.cluster_access import OnInterrupt
from app.main.commands.jobs.job_template import RunOptions
from app.main.commands.logs.log_choice import Following
from app.main.commands.logs.log_streams import LogStreams, print_log
from app.main.commands.terminal.screen import Screen
from app.main.commands.view.attempts import has_log
from app.main.commands.view.job_view import JobView, jobs_path, open_view, pods_path
from app.main.commands.view.job_words import Reader, describe, has_many, is_over

if TYPE_CHECKING:
    from app.client.api import Api

TICK_SECONDS = 1.0  # between two drawings of the line of progress
FORBIDDEN = 403
NO_IMAGES = ("process://", "simulated://")


async def submit_and_wait(
    api: "Api",
    namespace: str,
    document: dict[str, Any],
    options: RunOptions,
    *,
    wait: bool,
    logs: bool,
    on_interrupt: OnInterrupt,
) -> int:
    """Submit a Job, and wait for it if asked. Returns the exit code of the command."""
    if not options.image:
        await _check_image_is_not_needed(api)
    if options.queue:
        await _check_queue(api, namespace, options.queue)
    job = msgspec.json.decode(await api.request("POST", jobs_path(namespace), document), type=Job)
    if not wait:
        typer.echo(job.metadata.name)
        return 0
    return await wait_for(api, job, logs=logs, on_interrupt=on_interrupt)


async def wait_for(api: "Api", job: Job, *, logs: bool, on_interrupt: OnInterrupt = OnInterrupt.DETACH) -> int:
    """Wait until a Job has ended, show its progress and, if asked, its logs. Returns the exit code of the command."""
    screen = Screen()
    async with open_view(api, job) as view:
        streams = LogStreams(api, screen.write, has_many=has_many(job))
        try:
            await _follow(api, view, screen, streams if logs else None)
        except asyncio.CancelledError:
            await streams.stop()
            await _interrupt(api, job, screen, on_interrupt)
            raise
        finally:
            screen.clear()
    return _conclude(view, screen)


async def _follow(api: "Api", view: JobView, screen: Screen, streams: LogStreams | None) -> None:
    """Show progress and start logs until the Job is over and every log is printed."""
    while not view.is_over:
        if screen.is_due():
            screen.show(f"{view.job.metadata.name}: {describe(view.job, list(view.attempts.values()), Reader(now()))}")
        if streams:
            streams.start(view.take_changed_pods())
        await view.next_change(TICK_SECONDS if screen.is_live else None)
    await view.complete(api)
    if streams:
        streams.start(view.take_changed_pods())
        await streams.finish()


async def watch_job(api: "Api", job: Job) -> int:
    """Wait for a Job, and say how it fares: in one line on a terminal, else in a line for each change. Returns its code."""
    screen = Screen()
    async with open_view(api, job) as view:
        told = ""
        while not view.is_over:
            reader = Reader(now())
            words = describe(view.job, list(view.attempts.values()), reader)
            screen.show(f"{job.metadata.name}: {words}")
            if words != told and not screen.is_live:
                typer.echo(f"{reader.time_of(reader.now)} {job.metadata.name}: {words}")
            told = words
            await view.next_change(TICK_SECONDS if screen.is_live else None)
        await view.complete(api)
        screen.clear()
    code = _conclude(view, screen)
    if not code and not screen.is_live:
        typer.echo(f"job {job.metadata.name} {describe(view.job, list(view.attempts.values()), Reader(now()))}")
    return code


async def follow_logs(api: "Api", job: Job, how: Following) -> None:
    """Print the logs of a Job, of one index if asked, until it has ended."""
    screen = Screen()
    async with open_view(api, job) as view:
        streams = LogStreams(api, screen.write, has_many=has_many(job) and how.index is None, how=how)
        try:
            await _follow(api, view, screen, streams)
        finally:
            await streams.stop()
            screen.clear()


async def follow_pod(api: "Api", pod: Pod, how: Following) -> None:
    """Print the log of a pod until it has ended."""
    query = {"fieldSelector": f"metadata.name={pod.metadata.name}"}
    async with aclosing(api.list_and_watch(pods_path(pod.metadata.namespace), Pod, query)) as events:
        async for event in events:
            found = event.items[0] if event.items else event.object
            if found is None or event.type == "DELETED" or has_log(found):
                break
    await print_log(api, pod, Screen(is_quiet=True).write, how)


def _conclude(view: JobView, screen: Screen) -> int:
    """Say how the Job ended, if it failed or somebody looks. Returns the exit code."""
    name = view.job.metadata.name
    if view.is_gone and not is_over(view.job):
        screen.say(f"job {name} was deleted before it ended")
        return 1
    code = view.exit_code()
    if code or screen.is_live:
        screen.say(f"job {name} {describe(view.job, list(view.attempts.values()), Reader(now()))}")
    return code


async def _interrupt(api: "Api", job: Job, screen: Screen, how: OnInterrupt) -> None:
    """Leave the Job, or cancel it, and say so."""
    name = job.metadata.name
    if how is OnInterrupt.CANCEL:
        await api.request("DELETE", jobs_path(job.metadata.namespace, name), {"propagationPolicy": "Background"})
        screen.say(f"job {name} is cancelled")
    else:
        screen.say(f"job {name} goes on: `jobplane logs -f {name}` takes it up again, `jobplane cancel {name}` ends it")


async def _check_image_is_not_needed(api: "Api") -> None:
    """CommandError if a node runs containers. Users who may not list nodes are believed."""
    try:
        found = await api.request_json("GET", "/api/v1/nodes", params={"limit": "500"})
    except ApiError as error:
        if error.code != FORBIDDEN:
            raise
        return
    for node in found["items"]:
        version = node["status"].get("nodeInfo", {}).get("containerRuntimeVersion", "")
        if version and not version.startswith(NO_IMAGES):
            raise CommandError(
                f"node {node['metadata']['name']} runs containers, and these need an image: jobplane run IMAGE -- COMMAND"
            )


async def _check_queue(api: "Api", namespace: str, queue: str) -> None:
    """CommandError unless the namespace has such a queue: a namespace's pods always pass its own queue."""
    found = await api.request_json("GET", f"/apis/jobplane.dev/v1/namespaces/{namespace}/localqueues")
    names = sorted(item["metadata"]["name"] for item in found["items"])
    if queue not in names:
        there = f"it has {', '.join(names)}" if names else "it has none"
        raise CommandError(f"namespace {namespace} has no queue {queue}: {there}; pass -n NAMESPACE")

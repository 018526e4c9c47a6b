"""Logs of pods as they come: followed while a pod runs, read from the kept logs once it is gone. Used by `run` and `logs`.

A log that breaks off, as when the API is restarted, is taken up where it was. At most AT_ONCE logs are followed at a time; the
others wait, and are read in full when their turn comes.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import msgspec

from app.kinds.pod.pod import Pod, is_terminal
from app.machinery.errors import ApiError
from app.main.cli_process import now
from app.main.commands.attempts import has_log, index_of, main_container
from app.main.commands.job_view import pods_path
from app.main.commands.log_choice import WHOLE, Following
from app.main.commands.screen import LinePrefixer

if TYPE_CHECKING:
    from app.client.api import Api

AT_ONCE = 32
RETRY_SECONDS = 0.5
KEPT_LOGS = "/apis/logs.jobplane.dev/v1/namespaces/{namespace}/logs"
NOT_FOUND, BAD_REQUEST = 404, 400


def kept_logs_path(namespace: str, pod: str = "") -> str:
    return KEPT_LOGS.format(namespace=namespace) + (f"/{pod}" if pod else "")


class LogStreams:
    """Prints the log of each pod that it is given, once. `has_many`: lines get the pod's index, or else its name.

    Only pods of the index of `how` are printed, and its container, not the one that speaks for the pod.
    """

    def __init__(
        self,
        api: "Api",
        write: Callable[[bytes], None],
        *,
        has_many: bool,
        how: Following = WHOLE,
    ) -> None:
        self._api, self._write = api, write
        self._has_many, self._how = has_many, how
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def start(self, pods: Iterable[Pod]) -> None:
        """Begin to print the logs of those pods that have one, and are not printed yet."""
        for pod in pods:
            uid = pod.metadata.uid
            if uid not in self._tasks and has_log(pod) and self._how.index in (None, index_of(pod)):
                self._tasks[uid] = asyncio.create_task(self._print(pod))

    async def finish(self) -> None:
        """Wait until the logs are printed to their end."""
        await asyncio.gather(*self._tasks.values())

    async def stop(self) -> None:
        """Print no more."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _print(self, pod: Pod) -> None:
        async with self._turns:
            out = LinePrefixer(self._write, self._prefix(pod))
            await print_log(self._api, pod, out.write, self._how)
            out.end()

    def _prefix(self, pod: Pod) -> bytes:
        if not self._has_many:
            return b""
        index = index_of(pod)
        return f"[{pod.metadata.name if index is None else index}] ".encode()


async def print_log(api: "Api", pod: Pod, write: Callable[[bytes], None], how: Following = WHOLE) -> None:
    """Print the log of one container to its end, however often the connection breaks."""
    from app.client.api import UnreachableError

    meta = pod.metadata
    query = {**how.query, "container": how.container or main_container(pod)}
    path, kept = f"{pods_path(meta.namespace, meta.name)}/log", kept_logs_path(meta.namespace, meta.name)
    copy = _Copy(api, write)
    while True:
        try:
            try:
                await copy.run(path, {**query, "follow": "true"})
            except ApiError as error:
                if error.code != NOT_FOUND:
                    raise
                await copy.run(kept, {**query, "uid": meta.uid})
                return
            if await _has_ended(api, pod):
                return
        except UnreachableError:
            query = copy.resume(query)
            await asyncio.sleep(RETRY_SECONDS)


class _Copy:
    """Prints a log, and knows how much of it is printed."""

    def __init__(self, api: "Api", write: Callable[[bytes], None]) -> None:
        self._api, self._write = api, write
        self._written = 0
        self._last_at = now()

    async def run(self, path: str, query: dict[str, str]) -> None:
        """Print what has not been printed yet."""
        place = 0
        async with self._api.stream(path, query) as pieces:
            async for piece in pieces:
                fresh = piece[max(self._written - place, 0) :]
                place += len(piece)
                if fresh:
                    self._write(fresh)
                    self._written, self._last_at = place, now()

    def resume(self, query: dict[str, str]) -> dict[str, str]:
        """Return the query that goes on. The end of a log has another beginning by now, so a time stands for it."""
        if not self._written or not {"tailLines", "sinceTime"} & set(query):
            return query
        self._written = 0
        rest = {name: value for name, value in query.items() if name != "tailLines"}
        return {**rest, "sinceTime": self._last_at.isoformat(timespec="seconds")}


async def _has_ended(api: "Api", pod: Pod) -> bool:
    try:
        found = msgspec.json.decode(
            await api.request("GET", pods_path(pod.metadata.namespace, pod.metadata.name)), type=Pod
        )
    except ApiError as error:
        if error.code != NOT_FOUND:
            raise
        return True
    return found.metadata.uid != pod.metadata.uid or is_terminal(found)

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
from app.main.commands.attempts import index_of, main_container, main_status
from app.main.commands.job_view import pods_path
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

    index: only pods of this index; container: this one, not the one that speaks for the pod.
    """

    def __init__(
        self,
        api: "Api",
        write: Callable[[bytes], None],
        *,
        has_many: bool,
        index: int | None = None,
        container: str = "",
    ) -> None:
        self._api, self._write = api, write
        self._has_many, self._index, self._container = has_many, index, container
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def start(self, pods: Iterable[Pod]) -> None:
        """Begin to print the logs of those pods that have one, and are not printed yet."""
        for pod in pods:
            uid = pod.metadata.uid
            if uid not in self._tasks and has_log(pod) and self._index in (None, index_of(pod)):
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
            await print_log(self._api, pod, out.write, self._container)
            out.end()

    def _prefix(self, pod: Pod) -> bytes:
        if not self._has_many:
            return b""
        index = index_of(pod)
        return f"[{pod.metadata.name if index is None else index}] ".encode()


def has_log(pod: Pod) -> bool:
    """Return whether the container that speaks for the pod runs or has run."""
    status = main_status(pod)
    return bool(status and status.state and (status.state.running or status.state.terminated))


async def print_log(api: "Api", pod: Pod, write: Callable[[bytes], None], container: str = "") -> None:
    """Print the log of one container to its end, however often the connection breaks."""
    from app.client.api import UnreachableError

    meta = pod.metadata
    which = {"container": container or main_container(pod)}
    path, kept = f"{pods_path(meta.namespace, meta.name)}/log", kept_logs_path(meta.namespace, meta.name)
    written = 0
    while True:
        try:
            try:
                written = await _copy(api, path, {**which, "follow": "true"}, write, written)
            except ApiError as error:
                if error.code != NOT_FOUND:
                    raise
                await _copy(api, kept, {**which, "uid": meta.uid}, write, written)
                return
            if await _has_ended(api, pod):
                return
        except UnreachableError:
            await asyncio.sleep(RETRY_SECONDS)


async def _copy(api: "Api", path: str, query: dict[str, str], write: Callable[[bytes], None], skipped: int) -> int:
    """Print a log from a byte on. Returns the byte up to which it is printed."""
    place = 0
    async with api.stream(path, query) as pieces:
        async for piece in pieces:
            if place + len(piece) > skipped:
                write(piece[max(skipped - place, 0) :])
            place += len(piece)
    return max(place, skipped)


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

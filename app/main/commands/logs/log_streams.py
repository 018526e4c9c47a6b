"""Logs of pods as they come: followed while a pod runs, read from the kept logs once it is gone. Used by `run` and `logs`.

A log that breaks off, as when the API is restarted, is taken up where it was. At most AT_ONCE logs are followed at a time; the
others wait, and are read in full when their turn comes.
"""

import asyncio
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import msgspec

from app.kinds.pod.pod import Pod, is_terminal
from app.machinery.errors import ApiError
from app.main.commands.logs.log_choice import WHOLE, Following
from app.main.commands.terminal.screen import LinePrefixer
from app.main.commands.view.attempts import has_log, index_of, main_container
from app.main.commands.view.job_view import pods_path

if TYPE_CHECKING:
    from app.client.api import Api

AT_ONCE = 32
RETRY_SECONDS = 0.5
KEPT_LOGS = "/apis/logs.jobplane.dev/v1/namespaces/{namespace}/logs"
NOT_FOUND, BAD_REQUEST = 404, 400
# A line that is longer is kept in pieces, each of which has its time.
_PIECE = re.compile(rb"(.{16384})\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+(?:Z|[+-]\d\d:\d\d) ", re.DOTALL)


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
            try:
                await print_log(self._api, pod, out.write, self._how)
            except ApiError as error:
                # A deleted pod that had printed nothing has no kept log: the whole log is kept before a pod ends.
                if error.code != NOT_FOUND:
                    raise
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
    copy = (_LineCopy if {"tailLines", "sinceTime"} & set(query) else _Copy)(api, write, query)
    while True:
        try:
            try:
                await copy.run(path, {"follow": "true"})
            except ApiError as error:
                if error.code != NOT_FOUND:
                    raise
                await copy.run(kept, {"uid": meta.uid})
                return
            if await _has_ended(api, pod):
                return
        except UnreachableError:
            await asyncio.sleep(RETRY_SECONDS)


class _Copy:
    """Prints a log, and knows how many bytes of it are printed."""

    def __init__(self, api: "Api", write: Callable[[bytes], None], query: dict[str, str]) -> None:
        self._api, self._write, self._query = api, write, query
        self._written = 0

    async def run(self, path: str, more: dict[str, str]) -> None:
        """Print what has not been printed yet."""
        place = 0
        async with self._api.stream(path, {**self._query, **more}) as pieces:
            async for piece in pieces:
                fresh = piece[max(self._written - place, 0) :]
                place += len(piece)
                if fresh:
                    self._write(fresh)
                    self._written = place


class _LineCopy:
    """Prints the end of a log, which has another beginning each time: it knows the time of the last line that is printed.

    The server's clock is the only one that counts. It is asked for times, which are printed only if the user asks for them.
    """

    def __init__(self, api: "Api", write: Callable[[bytes], None], query: dict[str, str]) -> None:
        self._api, self._write, self._query = api, write, query
        self._shows_times = "timestamps" in query
        self._last = b""
        self._of_last = 0  # lines that are printed with that time
        self._passed: int | None = None  # those of them that came again; None if no line can come again

    async def run(self, path: str, more: dict[str, str]) -> None:
        """Print what has not been printed yet."""
        rest = b""
        self._passed = 0 if self._last else None
        async with self._api.stream(path, {**self._resume(), **more, "timestamps": "true"}) as pieces:
            async for piece in pieces:
                *lines, rest = (rest + piece).split(b"\n")
                self._print(line + b"\n" for line in lines)
        if rest:
            self._print([rest])

    def _resume(self) -> dict[str, str]:
        """The query from the second of the last line on: that is as exact as the API is."""
        if not self._last:
            return self._query
        query = {name: value for name, value in self._query.items() if name != "tailLines"}
        zone = b"Z" if self._last.endswith(b"Z") else self._last[-6:]
        return {**query, "sinceTime": (self._last[:19] + zone).decode()}

    def _print(self, lines: Iterable[bytes]) -> None:
        fresh = []
        for line in lines:
            at, _, text = line.partition(b" ")
            if self._passes(at):
                continue
            if at:
                self._of_last = self._of_last + 1 if at == self._last else 1
                self._last = at
            fresh.append(line if self._shows_times else _PIECE.sub(rb"\1", text))
        if fresh:
            self._write(b"".join(fresh))

    def _passes(self, at: bytes) -> bool:
        """Return whether a line was printed before the connection broke; from the first that was not, none was."""
        if self._passed is None:
            return False
        if at < self._last and (at or self._passed < self._of_last):  # one without a time may be new
            return True
        if at == self._last and self._passed < self._of_last:
            self._passed += 1
            return True
        self._passed = None
        return False


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

"""Log shipping to the API, by offset: a repeated request is harmless, and a gap is answered with the offset to go on from.

The runtime says which logs have grown, and they are read from there: a container without output costs nothing. What
could not be sent stays where it is, in the runtime, and is read again. `finish` waits until the API has all of a pod's.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple

import msgspec

from app.agent.clock import Clock
from app.client.api import Api
from app.client.protocol import LogOutcome, LogOutcomes, LogPiece, LogPieces, logs_path
from app.machinery.errors import ApiError
from app.runtimes.base import ContainerKey, Runtime
from app.structured_logging import Logger

CHUNK = 64 * 1024  # of one container in one request
MOST = 1024 * 1024  # of all containers in one request
GATHER = 0.05  # seconds between two requests, unless someone waits for the end of a log
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
REFUSED = (400, 404, 405, 413, 415, 422)  # no log of this request will ever be taken
PATIENCE = 3  # answers that take nothing, before we give up on a log

logger = Logger(__name__)


class LogOwner(NamedTuple):
    """The pod that a log belongs to."""

    node: str
    namespace: str
    name: str


class _Tail:
    """How far one container's log has come. `done` is there when someone waits for its end."""

    __slots__ = ("done", "key", "offset", "owner", "refused")

    def __init__(self, key: ContainerKey, owner: LogOwner) -> None:
        self.key, self.owner = key, owner
        self.offset = self.refused = 0
        self.done: asyncio.Future[None] | None = None


class LogShipper:
    """One loop for all containers of the agent."""

    def __init__(self, api: Api, runtime: Runtime, clock: Clock) -> None:
        self._api, self._runtime, self._clock = api, runtime, clock
        self._tails: dict[ContainerKey, _Tail] = {}
        self._due: dict[ContainerKey, None] = {}
        self._wake = asyncio.Event()
        self._hurry = asyncio.Event()

    def grew(self, key: ContainerKey, owner: LogOwner) -> None:
        if key not in self._tails:
            self._tails[key] = _Tail(key, owner)
        self._due[key] = None
        self._wake.set()

    def position(self, key: ContainerKey) -> int:
        """Return how far the API has it, as far as is known."""
        return self._tails[key].offset if key in self._tails else 0

    async def finish(self, keys: Iterable[ContainerKey], owner: LogOwner) -> None:
        """Returns when the API has the whole log of each of these containers, which have ended."""
        waiting = []
        for key in keys:
            if key not in self._tails and not (await self._read_log(key, 0, 1)):
                continue  # it wrote nothing, as most of a simulated fleet
            self.grew(key, owner)
            tail = self._tails[key]
            tail.done = tail.done or asyncio.get_running_loop().create_future()
            waiting.append(tail.done)
        if waiting:
            self._hurry.set()
            await asyncio.wait(waiting)

    def forget(self, keys: Iterable[ContainerKey]) -> None:
        """Their pod is gone: the rest is not shipped."""
        self._end_all(keys)

    async def run(self) -> None:
        pause = FIRST_PAUSE
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._due:
                if await self._ship_once():
                    pause = FIRST_PAUSE
                    await self._gather()
                else:
                    await self._clock.sleep(pause)
                    pause = min(pause * 2, LONGEST_PAUSE)

    async def _gather(self) -> None:
        if any(tail.done for tail in self._tails.values()):
            return
        self._hurry.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(GATHER):
                await self._hurry.wait()

    async def _ship_once(self) -> bool:
        pieces: dict[str, list[LogPiece]] = defaultdict(list)
        size, away = 0, False
        for key in list(self._due):
            if size >= MOST:
                break
            del self._due[key]
            tail = self._tails.get(key)
            try:
                data = await self._read_log(key, tail.offset, CHUNK) if tail else b""
            except ConnectionError as error:  # the rest is still there
                logger.warning("cannot read the log of a container; retrying", **key.log_fields, error=error)
                self._due[key], away = None, True
                continue
            if tail and data:
                size += len(data)
                pieces[tail.owner.node].append(_piece(tail, data))
            elif tail and tail.done:
                self._end(tail)
        sent = [await self._send(node, of_node) for node, of_node in pieces.items()]
        return all(sent) and not away

    async def _read_log(self, key: ContainerKey, offset: int, limit: int) -> bytes:
        try:
            return (await self._runtime.read_log(key, offset, limit)).data
        except ConnectionError:
            raise
        except Exception as error:  # a log that cannot be read must not hold up the others, nor the pod's status
            logger.error(
                "unexpected error; skipping the log of a container", **key.log_fields, error=error, traceback_of=error
            )
            return b""

    async def _send(self, node: str, pieces: Sequence[LogPiece]) -> bool:
        keys = {ContainerKey(piece.uid, piece.container, piece.attempt): piece for piece in pieces}
        try:
            body = await self._api.request("POST", logs_path(node), LogPieces(items=tuple(pieces)))
            outcomes = msgspec.json.decode(body, type=LogOutcomes).items
        except (ApiError, OSError, msgspec.MsgspecError) as error:
            if isinstance(error, ApiError) and error.code in REFUSED:
                logger.warning(
                    "API refuses logs of containers; dropping them", node=node, count=len(pieces), error=error
                )
                self._end_all(keys)
                return True
            logger.warning("cannot send logs of containers; retrying", node=node, count=len(pieces), error=error)
            self._due.update(dict.fromkeys(key for key in keys if key in self._tails))
            return False
        for outcome in outcomes:
            key = ContainerKey(outcome.uid, outcome.container, outcome.attempt)
            self._advance(key, keys.pop(key, None), outcome)
        self._end_all(keys)  # those that were not answered
        return True

    def _advance(self, key: ContainerKey, piece: LogPiece | None, outcome: LogOutcome) -> None:
        tail = self._tails.get(key)
        if tail is None or piece is None:
            return
        tail.refused = 0 if outcome.next > piece.offset else tail.refused + 1
        tail.offset = outcome.next
        self._runtime.release_log(key, outcome.next)
        if outcome.code not in (200, 409) or tail.refused >= PATIENCE:
            logger.info("API takes no more of the log of a container", **key.log_fields)
            self._end(tail)
        else:
            self._due[key] = None  # there may be more

    def _end_all(self, keys: Iterable[ContainerKey]) -> None:
        for key in keys:
            if key in self._tails:
                self._end(self._tails[key])

    def _end(self, tail: _Tail) -> None:
        self._tails.pop(tail.key, None)
        self._due.pop(tail.key, None)
        if tail.done and not tail.done.done():
            tail.done.set_result(None)


def _piece(tail: _Tail, data: bytes) -> LogPiece:
    key, owner = tail.key, tail.owner
    return LogPiece(
        uid=key.pod_uid,
        namespace=owner.namespace,
        name=owner.name,
        container=key.name,
        attempt=key.attempt,
        offset=tail.offset,
        data=data,
    )

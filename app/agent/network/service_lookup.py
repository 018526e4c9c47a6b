"""Service lookup: asks the API what DNS tells of a Service, and keeps the answer for a second. Called by `dns_responder`.

So an agent asks for nothing that its pods do not ask for, and at most once a second for each Service, however often they do.
While the API is not reachable, old answers are given. A pod that asks for any number of names costs a bounded number of requests.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

import msgspec

from app.agent.clock import Clock
from app.client.api import Api
from app.client.protocol import AddressNames, ServiceRecords, address_path, node_segment, service_path
from app.machinery.errors import ApiError

FRESH = 1.0  # seconds for which an answer is given again
STALE = 3600.0  # seconds for which it is given while the API is not reachable
PATIENCE = 2.0  # seconds; clients ask again after five
MOST = 1024  # answers kept
AT_ONCE = 8  # requests under way

K = TypeVar("K")
V = TypeVar("V")


class NoAnswerError(Exception):
    """The API does not answer, and there is no old answer."""


class _Answers(Generic[K, V]):
    """The newest answer for each key, the one asked for last at the end."""

    def __init__(self, ask: Callable[[K], Awaitable[V]], clock: Clock) -> None:
        self._ask, self._clock = ask, clock
        self._known: dict[K, tuple[float, V]] = {}
        self._asking: dict[K, asyncio.Task[V]] = {}
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def find(self, key: K) -> V:
        asked_at, known = self._known.get(key, (-STALE, None))
        if known is not None and self._clock.elapsed() - asked_at < FRESH:
            return known
        if key not in self._asking:
            task = self._asking[key] = asyncio.ensure_future(self._fetch(key))
            task.add_done_callback(lambda done: self._on_done(key, done))
        try:
            async with asyncio.timeout(PATIENCE):
                return await asyncio.shield(self._asking[key])
        except (ApiError, ConnectionError, TimeoutError, msgspec.MsgspecError) as error:
            if known is not None and self._clock.elapsed() - asked_at < STALE:
                return known
            raise NoAnswerError(str(error)) from error

    async def _fetch(self, key: K) -> V:
        async with self._turns:
            asked_at = self._clock.elapsed()
            value = await self._ask(key)
        self._known.pop(key, None)
        self._known[key] = asked_at, value
        while len(self._known) > MOST:
            del self._known[next(iter(self._known))]
        return value

    def _on_done(self, key: K, task: asyncio.Task[V]) -> None:
        del self._asking[key]
        if not task.cancelled():
            task.exception()  # whoever asked has got it, or has gone


class ServiceLookup:
    """Of the API, for the nodes of one agent. Both raise NoAnswerError."""

    def __init__(self, api: Api, nodes: Sequence[str], clock: Clock) -> None:
        node = node_segment(nodes)

        async def records(key: tuple[str, str]) -> ServiceRecords:
            return await _read(api, service_path(node, *key), ServiceRecords())

        async def names(address: str) -> AddressNames:
            return await _read(api, address_path(node, address), AddressNames())

        self._records, self._names = _Answers(records, clock), _Answers(names, clock)

    async def records(self, namespace: str, name: str) -> ServiceRecords:
        return await self._records.find((namespace, name))

    async def names(self, address: str) -> list[str]:
        return (await self._names.find(address)).names


async def _read(api: Api, path: str, default: V) -> V:
    """An API that is older than this agent has no such path: it knows of no names."""
    try:
        return msgspec.json.decode(await api.request("GET", path), type=type(default))
    except ApiError as error:
        if error.code != 404:
            raise
        return default

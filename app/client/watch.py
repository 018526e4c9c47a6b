"""List and watch, for ever: resumes where it was, lists again after 410 (too late). Behind `Api`.

Lines are split here, from raw chunks, and each is decoded once, straight into the kind's struct.
"""

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, aclosing
from functools import cache
from typing import Any, Generic, NoReturn, Protocol, TypeVar

import msgspec

from app.client.protocol import NamespaceLevel
from app.machinery.base import O
from app.machinery.errors import ApiError
from app.structured_logging import Logger

T = TypeVar("T")

PAGE = 500
WINDOW = (150, 300)  # seconds that one watch request lasts, at random: those that begin together do not end together
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
LOST = (410, 504)  # the revision is too old, or too new, as when the database was put back or made anew

logger = Logger(__name__)


class WatchSource(Protocol):
    """The two calls of `Api` that a watch is made of."""

    async def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        params: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> bytes: ...

    def stream(
        self, path: str, params: Mapping[str, str] | None = None
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]: ...


class WatchEvent(msgspec.Struct, Generic[O], frozen=True):
    """ADDED, MODIFIED or DELETED with one object; or LISTED with all there are: whatever is not among them is gone.

    namespace: the level of an ADDED pod's namespace, if the watch asked for levels and the API sends them.
    """

    type: str
    object: O | None = None
    items: tuple[O, ...] = ()
    namespace: NamespaceLevel | None = None


class _Line(msgspec.Struct, Generic[T]):
    type: str
    object: T
    namespace: NamespaceLevel | None = None


class _PageMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _Page(msgspec.Struct):
    metadata: _PageMeta
    items: tuple[msgspec.Raw, ...] = ()


class _Meta(msgspec.Struct, rename="camel"):
    name: str = ""
    resource_version: str = ""


class _Anything(msgspec.Struct):
    """What is read of an object that cannot be read as its kind; a Status is one."""

    metadata: _Meta = msgspec.field(default_factory=_Meta)
    code: int = 0
    reason: str = ""
    message: str = ""


async def follow(
    source: WatchSource,
    path: str,
    kind: type[O],
    params: Mapping[str, str],
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> AsyncGenerator[WatchEvent[O]]:
    """A LISTED first, then each change. It goes on after trouble, with a further LISTED if it missed anything.

    Raises `ApiError` only for what does not pass: no right to read, no such path.
    """
    watch = _Watch(source, path, kind, params)
    pause = FIRST_PAUSE
    while True:
        watch.has_heard = False
        try:
            if not watch.revision:
                yield await watch.listed()
            async with aclosing(watch.changes()) as changes:
                async for event in changes:
                    yield event
        except ApiError as error:
            if error.code in (400, 401, 403, 404, 405):
                raise
            logger.info("watch failed; watching again", path=path, error=error)
            if error.code in LOST:
                watch.revision = ""
        except (ConnectionError, msgspec.MsgspecError) as error:
            logger.info("watch failed; watching again", path=path, error=error)
        else:
            watch.has_heard = True  # it ended in good order, as each does after a while: what happens now must not wait
        pause = FIRST_PAUSE if watch.has_heard else pause
        await sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - a fleet must not come back at one moment
        pause = min(pause * 2, LONGEST_PAUSE)


class _Watch(Generic[O]):
    """`revision` is where the watch stands; empty: it must list first. `has_heard`: a line has come, be it a bookmark."""

    def __init__(self, source: WatchSource, path: str, kind: type[O], params: Mapping[str, str]) -> None:
        self.revision, self.has_heard = "", False
        self._source, self._path, self._kind, self._params = source, path, kind, dict(params)
        self._line: msgspec.json.Decoder[_Line[O]] = _line_decoder(kind)

    async def listed(self) -> WatchEvent[O]:
        items: list[O] = []
        token, revision = "", ""
        while True:
            params = {**self._params, "limit": str(PAGE), **({"continue": token} if token else {})}
            page = msgspec.json.decode(await self._source.request("GET", self._path, params=params), type=_Page)
            items += [item for raw in page.items for item in self._item(raw)]
            # All pages show the first one's revision, and from there the watch goes on.
            revision, token = revision or page.metadata.resource_version, page.metadata.continue_
            if not token:
                self.revision = revision
                return WatchEvent("LISTED", items=tuple(items))

    def _item(self, raw: msgspec.Raw) -> Iterator[O]:
        try:
            yield msgspec.json.decode(raw, type=self._kind)
        except msgspec.MsgspecError as error:
            self._complain(msgspec.json.decode(raw, type=_Anything), error)

    async def changes(self) -> AsyncGenerator[WatchEvent[O]]:
        params = {
            **self._params,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self.revision,
            "timeoutSeconds": str(random.randint(*WINDOW)),  # noqa: S311 - spreads reconnects
        }
        async with self._source.stream(self._path, params) as chunks, aclosing(lines(chunks)) as read:
            async for line in read:
                for event in self._read(line):
                    yield event

    def _read(self, line: bytes) -> Iterator[WatchEvent[O]]:
        try:
            read = self._line.decode(line)
        except msgspec.MsgspecError as error:
            self._skip(line, error)
            return
        if read.type == "ERROR":
            raise_status(msgspec.json.decode(line, type=_Line[_Anything]).object)
        self.has_heard = True
        self.revision = read.object.metadata.resource_version or self.revision
        if read.type != "BOOKMARK":
            yield WatchEvent(read.type, read.object, namespace=read.namespace)

    def _skip(self, line: bytes, error: Exception) -> None:
        """An ERROR carries a Status, which few kinds can be read from. Anything else is logged, and ignored."""
        read = msgspec.json.decode(line, type=_Line[_Anything])
        if read.type == "ERROR":
            raise_status(read.object)
        self._complain(read.object, error)
        self.revision = read.object.metadata.resource_version or self.revision

    def _complain(self, read: _Anything, error: Exception) -> None:
        logger.error(
            "cannot decode an object of a watch; ignoring it", path=self._path, object=read.metadata.name, error=error
        )


@cache
def _line_decoder(kind: Any) -> Any:
    """Made once a kind: a fleet of a thousand nodes has a thousand watches."""
    return msgspec.json.Decoder(_Line[kind])


def raise_status(status: _Anything) -> NoReturn:
    """Raise what an ERROR event says. A 401 within a stream is the end of its token, which may have been renewed meanwhile."""
    if status.code == 401:
        raise ConnectionError("the token of the stream has ended")
    raise ApiError(status.code or 500, status.reason, status.message)


async def lines(chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
    """Whole lines, without their ends, of a stream that is cut anywhere."""
    rest: list[bytes] = []
    async for chunk in chunks:
        *whole, tail = chunk.split(b"\n")
        for end in whole:
            line = b"".join((*rest, end))
            rest = []
            if line:
                yield line
        if tail:
            rest.append(tail)

"""Connections to Postgres: to whichever machine of the URL takes them, with limits of silence, and with known types.

Called by all of the store that connects. asyncpg tries the machines of a URL in turn, within one limit of time: one that is
switched off and listed first would take all of it. And it waits for an answer as long as TCP does, which is a quarter of an
hour when the machine, or the network to it, has vanished without a word.

asyncpg asks every new connection what the arrays are that it meets, by a query that takes Postgres ten milliseconds of a
processor. Built-in types are the same in every database: the first answer holds for all connections of the process.
"""

import asyncio
import socket
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, ClassVar, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

import asyncpg

_FIRST_OF_OTHERS = 16384  # object ids below it are Postgres' own, and the same everywhere
CONNECT_SECONDS = 5.0
HOST_SECONDS = 3.0  # for one machine of several
_DEFAULT_PORT = 5432
# A machine that is gone is noticed after ten seconds: by what it does not acknowledge, or, while it is to answer, by probes.
_SILENCE = (("TCP_USER_TIMEOUT", 10_000), ("TCP_KEEPIDLE", 4), ("TCP_KEEPINTVL", 2), ("TCP_KEEPCNT", 3))
_NEXT = (OSError, asyncpg.CannotConnectNowError, asyncpg.TargetServerAttributeNotMatched)


class Host(NamedTuple):
    """A machine of a URL; a folder with a socket is one, too."""

    host: str
    port: int


_last_used: dict[str, Host] = {}
"""Of URLs with several hosts, the one that took the last connection."""


async def connect(dsn: str, **options: Any) -> asyncpg.Connection:
    """Connect to the first host of the URL that answers and is what `target_session_attrs` wants; the last one used comes first.

    `options` are those of asyncpg.connect; `timeout`, in seconds, is for a URL with one host. Raises asyncpg's errors.
    """
    options = {"timeout": CONNECT_SECONDS, "connection_class": Connection, **options}
    hosts = hosts_of(dsn)
    if len(hosts) < 2:
        return _with_limits(await asyncpg.connect(dsn, **options))
    options["timeout"] = HOST_SECONDS
    last: Exception | None = None
    for host in sorted(hosts, key=lambda each: each != _last_used.get(dsn)):
        try:
            made = await asyncpg.connect(dsn, host=host.host, port=host.port, **options)
        except _NEXT as error:
            last = error
        else:
            _last_used[dsn] = host
            return _with_limits(made)
    raise last or AssertionError


def hosts_of(dsn: str) -> Sequence[Host]:
    """Return the hosts that a URL names, in order; none if it leaves them to asyncpg's defaults. ValueError for a wrong port."""
    parts = urlsplit(dsn)
    query = parse_qs(parts.query)
    if named := parts.netloc.rpartition("@")[2]:
        return [_host(text) for text in named.split(",")]
    hosts = [each for text in query.get("host", []) for each in text.split(",")]
    ports = [int(each) for text in query.get("port", [str(_DEFAULT_PORT)]) for each in text.split(",")]
    if len(ports) != len(hosts):
        ports = ports[:1] * len(hosts)
    return [Host(*pair) for pair in zip(hosts, ports, strict=True)]


def _host(text: str) -> Host:
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):  # the colons of an IPv6 address
        host, port = text, ""
    return Host(unquote(host.strip("[]")), int(port or _DEFAULT_PORT))


def _with_limits(connection: asyncpg.Connection) -> asyncpg.Connection:
    """The same, with limits of silence where there is TCP. What the platform or asyncpg lacks is left out."""
    transport: asyncio.Transport | None = getattr(connection, "_transport", None)
    found = transport.get_extra_info("socket") if transport is not None else None
    if found is None or found.family == socket.AF_UNIX:
        return connection
    with suppress(OSError):
        found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _SILENCE:
            if hasattr(socket, name):
                found.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return connection


class _NoStatement(NamedTuple):
    """In place of the query that was not needed. Its name says that it has displaced no statement without one."""

    name: str = "remembered"


class Connection(asyncpg.Connection):
    """If an asyncpg has no such method, or never calls it, it asks each time, as without this class."""

    _remembered: ClassVar[dict[frozenset[int], Any]] = {}

    async def _introspect_types(self, typeoids: Iterable[int], *more: Any, **options: Any) -> tuple[Any, Any]:
        """Return descriptions of types, and the statement that found them."""
        asked = frozenset(typeoids)
        if asked in self._remembered:
            return self._remembered[asked], _NoStatement()
        types, statement = await super()._introspect_types(asked, *more, **options)  # type: ignore[misc]
        if max(asked) < _FIRST_OF_OTHERS:
            self._remembered[asked] = types
        return types, statement

"""Accepts the connections of the API, and begins their TLS handshakes by turns, so that a storm of them holds nobody up.

A handshake costs as much CPU as five GETs. An event loop that accepts by itself begins all that have arrived in one step: for
thousands of connections it stands still for seconds. Here a step of the loop accepts a few, and begins a few handshakes; client
addresses take turns, and each may have only so many connections. What is too much is refused before it costs a handshake.

`app.api.serve` runs a `Listener` in place of uvicorn's servers; `fd_exhaustion` logs when it runs out of file descriptors.
"""

import asyncio
import errno
import os
import socket
import ssl
import struct
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

from app.api.http.connection_limits import MOST_CONNECTIONS

MOST_OF_ONE_ADDRESS = MOST_CONNECTIONS // 2  # connections, those that wait for their handshake included
ACCEPTED_AT_ONCE = 16  # connections in one step of the loop: half a millisecond
BEGUN_AT_ONCE = 2  # handshakes in one step of the loop: a millisecond; a GET waits for about eight steps
MOST_HANDSHAKES = 2_048  # under way; each holds 50 KiB
MOST_HANDSHAKES_OF_ONE_ADDRESS = 512
SILENT_SECONDS = 10.0  # until the first bytes of a handshake, and until its end
BACKLOG = 4_096
_NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: closing sends a reset, and leaves nothing behind
_NETWORK = 8  # bytes of an IPv6 address that one client may vary after


class _Client(socket.socket):
    """An accepted socket, which tells its source once when a transport, or anybody, lets go of it."""

    source: "_Source | None" = None

    def detach(self) -> int:  # what uvloop calls when it closes a transport
        self._leave()
        return super().detach()

    def close(self) -> None:
        self._leave()
        super().close()

    def _leave(self) -> None:
        source, self.source = self.source, None
        if source is not None:
            source.leave()

    def has_sent(self) -> bool:
        """Return whether its first bytes, or its end, have arrived."""
        try:
            self.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True

    def reset(self) -> None:
        with suppress(OSError):
            self.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.close()


class _Source:
    """The connections of one client address. `waiting`: those whose handshake may begin."""

    __slots__ = ("_address", "_sources", "handshakes", "open", "waiting")

    def __init__(self, address: str, sources: "dict[str, _Source]") -> None:
        self._address, self._sources = address, sources
        self.open = self.handshakes = 0
        self.waiting: deque[_Client] = deque()

    def leave(self) -> None:
        self.open -= 1
        if not self.open:
            self._sources.pop(self._address, None)


class Listener:
    """Listens on bound sockets. Has what uvicorn calls of an asyncio server.

    make:    makes the protocol of a connection.
    context: of TLS; None: plain HTTP.
    """

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        make: Callable[[], asyncio.Protocol],
        context: ssl.SSLContext | None,
        *,
        most_of_one_address: int = MOST_OF_ONE_ADDRESS,
    ) -> None:
        self.sockets = list(sockets)
        self._make, self._context, self._most = make, context, most_of_one_address
        self._loop = asyncio.get_running_loop()
        self._sources: dict[str, _Source] = {}
        self._turns: deque[_Source] = deque()  # sources with connections that wait
        self._silent: dict[_Client, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_due = False
        self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        for each in self.sockets:
            each.setblocking(False)
            each.listen(BACKLOG)
            self._loop.add_reader(each, self._accept_some, each)

    def close(self) -> None:
        """Accept no more, and drop what has no connection yet."""
        for each in self.sockets:
            self._loop.remove_reader(each)
        self.sockets.clear()
        for client in list(self._silent):
            self._end_silence(client)
            client.reset()
        for source in self._turns:
            for client in source.waiting:
                client.reset()
        self._turns.clear()
        for task in self._tasks:
            task.cancel()
        if self._spare >= 0:
            os.close(self._spare)
            self._spare = -1

    async def wait_closed(self) -> None:
        """Wait for handshakes that `close` has cancelled."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    # Accepting

    def _accept_some(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                plain, address = listening.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _NO_DESCRIPTORS:
                    self._refuse_without_descriptor(listening)
                continue  # the client is gone already
            self._take_in(_Client(plain.family, plain.type, plain.proto, fileno=plain.detach()), address[0])

    def _refuse_without_descriptor(self, listening: socket.socket) -> None:
        """Close the oldest connection that waits to be accepted: left alone, it would wake the loop again and again."""
        os.close(self._spare)
        with suppress(OSError):
            listening.accept()[0].close()
        with suppress(OSError):
            self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def _take_in(self, client: _Client, address: str) -> None:
        key = network_of(address) if client.family == socket.AF_INET6 else address
        source = self._sources.get(key)
        if source is None:
            source = self._sources[key] = _Source(key, self._sources)
        client.source = source
        source.open += 1
        if source.open > self._most:
            client.reset()
            return
        client.setblocking(False)
        if self._context is None or client.has_sent():
            self._queue(client, source)
        else:  # it costs nothing but its descriptor until it begins
            self._silent[client] = self._loop.call_later(SILENT_SECONDS, self._drop_silent, client)
            self._loop.add_reader(client, self._hear, client, source)

    def _hear(self, client: _Client, source: _Source) -> None:
        self._end_silence(client)
        self._queue(client, source)

    def _drop_silent(self, client: _Client) -> None:
        self._end_silence(client)
        client.reset()

    def _end_silence(self, client: _Client) -> None:
        self._silent.pop(client).cancel()
        self._loop.remove_reader(client)

    # Beginning

    def _queue(self, client: _Client, source: _Source) -> None:
        if not source.waiting:
            self._turns.append(source)
        source.waiting.append(client)
        self._plan()

    def _plan(self) -> None:
        if self._turns and not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._begin_some)

    def _begin_some(self) -> None:
        """Begin the next handshakes; the rest in the next step of the loop, after all else that is ready."""
        self._is_due = False
        for _ in range(BEGUN_AT_ONCE):
            found = self._next()
            if found is None:
                return  # the end of a handshake plans the next
            task = self._loop.create_task(self._connect(*found))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        self._plan()

    def _next(self) -> tuple[_Client, _Source] | None:
        """Take the client whose turn it is, and count its handshake; None if none may begin now."""
        if len(self._tasks) >= MOST_HANDSHAKES:
            return None
        for _ in range(len(self._turns)):
            source = self._turns.popleft()
            client = None
            if source.handshakes < MOST_HANDSHAKES_OF_ONE_ADDRESS:
                client = source.waiting.popleft()
                source.handshakes += 1
            if source.waiting:
                self._turns.append(source)
            if client is not None:
                return client, source
        return None

    async def _connect(self, client: _Client, source: _Source) -> None:
        try:
            await self._loop.connect_accepted_socket(
                self._make,
                client,
                ssl=self._context,
                ssl_handshake_timeout=SILENT_SECONDS if self._context else None,
            )
        except OSError:  # it is gone, or speaks no TLS, or shows a certificate that nobody trusts
            client.close()
        finally:
            source.handshakes -= 1
            self._plan()


def network_of(address: str) -> str:
    """Return what stands for a client's IPv6 address: its /64, within which it may choose as it likes."""
    return socket.inet_pton(socket.AF_INET6, address.partition("%")[0])[:_NETWORK].hex()

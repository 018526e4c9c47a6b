"""Network namespaces of pods, from outside: connections to ports on a pod's loopback. Called by the runtimes.

A socket belongs for ever to the namespace in which it was made. A thread of its own enters the namespace, makes it,
and ends: nothing else of the agent ever leaves the node's.
"""

import asyncio
import ctypes
import os
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from typing import TypeVar

from app.runtimes.base import Unsupported

LOOPBACKS = ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"))
CONNECTED_WITHIN = 10.0  # seconds
_CLONE_NEWNET = 0x40000000
_CHUNK = 64 * 1024
_LIBC = ctypes.CDLL(None, use_errno=True)

T = TypeVar("T")


class StreamPipe:
    """A `base.Pipe` over a connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def read(self) -> bytes:
        return await self._reader.read(_CHUNK)

    async def write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def end(self) -> None:
        if self._writer.can_write_eof() and not self._writer.is_closing():
            self._writer.write_eof()

    async def close(self) -> None:
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()


async def dial(namespace: str, port: int) -> StreamPipe:
    """`namespace`: the path of a network namespace; empty for the node's. Raises ConnectionError, Unsupported."""
    trouble: OSError | None = None
    for family, address in LOOPBACKS:
        try:
            made = await _make_socket(namespace, family)
        except OSError as error:
            trouble = trouble or error
            continue
        try:
            async with asyncio.timeout(CONNECTED_WITHIN):
                await asyncio.get_running_loop().sock_connect(made, (address, port))
            return StreamPipe(*await asyncio.open_connection(sock=made))
        except (OSError, TimeoutError) as error:
            made.close()
            trouble = trouble or error
    raise ConnectionError(f"port {port} of the pod: {trouble}")


async def _make_socket(namespace: str, family: socket.AddressFamily) -> socket.socket:
    if not namespace:
        made = _socket(family)
    else:
        made = await call_in_thread(partial(_call_inside, namespace, partial(_socket, family)))
    return made


async def call_in_thread(call: Callable[[], T]) -> T:
    """By a thread that ends with it, and so may enter a namespace."""
    thread = ThreadPoolExecutor(max_workers=1)
    try:
        return await asyncio.get_running_loop().run_in_executor(thread, call)
    finally:
        thread.shutdown(wait=False)


def enter(namespace: int) -> None:
    """Of this thread, from now on. `namespace`: a descriptor. Raises Unsupported."""
    if _LIBC.setns(namespace, _CLONE_NEWNET):
        number = ctypes.get_errno()
        raise Unsupported(f"the agent may not enter the networks of its pods: {os.strerror(number)}")


@contextmanager
def visit(namespace: int) -> Iterator[None]:
    """Meanwhile this thread is in a network namespace. If it cannot come back, nothing else may use it. Raises Unsupported."""
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        enter(namespace)
        try:
            yield
        finally:
            enter(home)
    finally:
        os.close(home)


def _call_inside(namespace: str, call: Callable[[], T]) -> T:
    fd = os.open(namespace, os.O_RDONLY | os.O_CLOEXEC)
    try:
        enter(fd)
    finally:
        os.close(fd)
    return call()


def _socket(family: socket.AddressFamily) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setblocking(False)
    return made

"""Listening sockets of the API, bound before it waits for anything else. The command line calls `bind_sockets`."""

import asyncio
import errno
import os
import socket
from typing import Any

from app.structured_logging import Logger

PATIENCE, PAUSE = 5.0, 0.1  # seconds: another API on this port may be about to end
PASSIVE = socket.AI_PASSIVE
ABSENT = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)

logger = Logger(__name__)


class ListenError(Exception):
    """The API cannot listen there; the text says what to do."""


async def bind_sockets(host: str, port: int) -> list[socket.socket]:
    """Bind one socket for each address of the host. Retries a used port for `PATIENCE` seconds. Raises ListenError."""
    loop = asyncio.get_running_loop()
    ends = loop.time() + PATIENCE
    while True:
        try:
            return await _bind_addresses(host, port)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or loop.time() >= ends:
                raise ListenError(explain_listen_error(error, host, port)) from error
        logger.warning("port is in use; trying again for a while", address=f"{host}:{port}", seconds=PATIENCE)
        await asyncio.sleep(PAUSE)


async def _bind_addresses(host: str, port: int) -> list[socket.socket]:
    """Bind every address that this machine has; skip the others."""
    found = await asyncio.get_running_loop().getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=PASSIVE)
    made: list[socket.socket] = []
    absent: OSError | None = None
    for family, address in dict.fromkeys((each[0], each[4]) for each in found):
        try:
            made.append(_open_socket(family, address))
        except OSError as error:
            if error.errno not in ABSENT:
                for each in made:
                    each.close()
                raise
            absent = error
    if absent and not made:
        raise absent
    return made


def _open_socket(family: int, address: Any) -> socket.socket:
    opened = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        opened.setsockopt(
            socket.IPPROTO_TCP, socket.TCP_NODELAY, 1
        )  # inherited by connections: no Nagle delay of answers
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        opened.bind(address)
        opened.setblocking(False)
    except BaseException:
        opened.close()
        raise
    return opened


def explain_listen_error(error: OSError, host: str, port: int) -> str:
    """Return the error message: why the API cannot listen there, and what to do."""
    place = f"{host}:{port}"
    match error.errno:
        case errno.EADDRINUSE:
            return f"port {port} of {host} is in use: pass another --port, or stop the program that listens there"
        case errno.EACCES:
            return f"user {os.geteuid()} cannot listen on {place}: pass a --port above 1023"
        case errno.EADDRNOTAVAIL | errno.EAFNOSUPPORT:
            return f"{host} is not an address of this machine: pass another --host, or 0.0.0.0 for all of its addresses"
    return f"cannot listen on {place} ({error.strerror or error}): pass another --host"

"""Peer of a Unix socket: which process it is, and since when. Called by the runtimes with engines."""

import socket
import struct
from contextlib import suppress
from datetime import UTC, datetime

from app.runtimes.engine.shims import started_at

PATIENCE = 1.0  # seconds for a listener to take the connection
_CREDENTIALS = struct.Struct("3i")  # process, user, group


def process(connection: socket.socket) -> int:
    """Who listened; 0 if it is not seen from here."""
    pid: int = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))[0]
    return pid


def began_at(path: str) -> datetime | None:
    """When the process began that listens, to a few hundredths of a second; None if nobody does, or it is not seen here."""
    with socket.socket(socket.AF_UNIX) as connection, suppress(OSError):
        connection.settimeout(PATIENCE)
        connection.connect(path)
        began = started_at(process(connection))
        return datetime.fromtimestamp(began, UTC) if began is not None else None
    return None

"""Who is at the other end of a Unix socket. The docker runtime asks since when the engine has been there."""

import os
import socket
import struct
import time
from contextlib import suppress
from datetime import UTC, datetime

from app.runtimes import process_table

PATIENCE = 1.0  # seconds for a listener to take the connection
_CREDENTIALS = struct.Struct("3i")  # pid, user and group


def began_at(path: str) -> datetime | None:
    """When the process began that listens, to a few hundredths of a second; None if nobody does, or it is not seen here."""
    with socket.socket(socket.AF_UNIX) as connection, suppress(OSError):
        connection.settimeout(PATIENCE)
        connection.connect(path)
        told = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        process = process_table.look(_CREDENTIALS.unpack(told)[0])
        return _moment(process.start) if process else None
    return None


def _moment(ticks: int) -> datetime:
    """Ticks are counted from when the machine was started."""
    ago = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return datetime.fromtimestamp(time.time() - ago, UTC)

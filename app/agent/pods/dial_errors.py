"""Dial errors in the words of Go programs, which people search the net for."""

import errno

_WORDS = {
    errno.ECONNREFUSED: "connect: connection refused",
    errno.EHOSTUNREACH: "connect: no route to host",
    errno.ENETUNREACH: "connect: network is unreachable",
    errno.ETIMEDOUT: "connect: connection timed out",
    errno.ECONNRESET: "read: connection reset by peer",
}


def refused(error: BaseException, host: str, port: int) -> str:
    """Looks for the operating system's word behind what a library made of it."""
    cause: BaseException | None = error
    seen = 0
    while cause is not None and seen < 10:
        if isinstance(cause, OSError) and cause.errno in _WORDS:
            return f"dial tcp {host}:{port}: {_WORDS[cause.errno]}"
        cause = cause.__cause__ or cause.__context__
        seen += 1
    if "connection attempts failed" in str(error):
        return f"dial tcp {host}:{port}: connect: connection refused"
    return str(error) or "EOF"

"""Termination message from the end of a container's log (FallbackToLogsOnError)."""

from app.runtimes.base import ContainerKey, ContainerStatus, Runtime

MOST_BYTES, MOST_LINES = 2048, 80  # as the kubelet takes them
PIECE = 1 << 20
BEHIND = 16 << 10  # of records, which holds more than enough


async def message_from_log(runtime: Runtime, key: ContainerKey, near: int) -> str:
    """Last lines of a log. `near`: an offset not far from the end, where reading may begin."""
    offset, tail = max(0, near - BEHIND), b""
    whole = offset == 0
    while True:
        chunk = await runtime.read_log(key, offset, PIECE)
        if not chunk.data:
            break
        offset = chunk.offset + len(chunk.data)
        tail += chunk.data
        whole = whole and len(tail) <= BEHIND
        tail = tail[-BEHIND:]
    return _text(tail if whole else tail.partition(b"\n")[2])


def _text(records: bytes) -> str:
    text = b""
    for record in records.splitlines():
        parts = record.split(b" ", 3)
        if len(parts) == 4:
            text += parts[3] + (b"\n" if parts[2] == b"F" else b"")
    return b"".join(text[-MOST_BYTES:].splitlines(keepends=True)[-MOST_LINES:]).decode(errors="replace")


def falls_back_to_log(status: ContainerStatus, policy: str) -> bool:
    return (
        policy == "FallbackToLogsOnError"
        and status.state == "exited"
        and status.exit_code != 0
        and status.reason != "StartError"
        and not status.termination_message
    )

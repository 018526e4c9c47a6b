"""Container status from its folder. Called by the process runtime; the same files give the same answer.

Times are those that the kernel gave the files, so every agent that reads them reports the same.
"""

from contextlib import suppress
from datetime import UTC, datetime

import msgspec

from app.runtimes.base import ContainerStatus
from app.runtimes.process.files import Folder

MESSAGE_LIMIT = 4096
OOM_KILLED = "OOMKilled"  # whichever of its processes the kernel killed for memory, and whatever became of the first
LOST = "the process that watched over the container was killed, so its exit code is not known"
NEVER_RAN = "the agent ended while it was starting the container, which never ran"


class Conclusion(msgspec.Struct, frozen=True):
    """How a container ended that left no exit code."""

    exit_code: int | None
    reason: str
    message: str


def running_status(folder: Folder) -> ContainerStatus:
    return ContainerStatus(key=folder.key, state="running", id=_id(folder), started_at=_started_at(folder))


def read_end(folder: Folder) -> ContainerStatus | None:
    """The final word; None if there is none yet. A verdict beats a late exit code: it has been reported."""
    with suppress(OSError), folder.open_folder():
        return _by_verdict(folder) or _by_code(folder)
    return None  # the folder is gone


def conclude(folder: Folder, verdict: Conclusion) -> ContainerStatus:
    """Ends a container that has no exit code, unless it has been concluded before."""
    folder.write("verdict.json", msgspec.json.encode(verdict))
    found = read_end(folder)
    return found or ContainerStatus(  # the disk is full, or the folder gone
        key=folder.key,
        state="exited",
        id=_id(folder),
        exit_code=verdict.exit_code,
        reason=verdict.reason,
        message=verdict.message,
    )


def conclude_lost(folder: Folder, boot: str) -> ContainerStatus:
    """The shim is dead and left no code. Without a record of its process the command was not reached, as far as is known.

    A crash of the machine may have taken that record: of another boot nothing is known.
    """
    shim = folder.shim()
    if folder.main() is None and shim and shim.boot == boot:
        return conclude(folder, Conclusion(128, "StartError", NEVER_RAN))
    return conclude(folder, Conclusion(None, "ContainerStatusUnknown", LOST))


def _by_verdict(folder: Folder) -> ContainerStatus | None:
    content = folder.read("verdict.json", 64 * 1024)
    if content is None:
        return None
    try:
        verdict = msgspec.json.decode(content.data, type=Conclusion)
    except msgspec.DecodeError:  # torn by a crash, or not ours
        verdict = Conclusion(None, "ContainerStatusUnknown", LOST)
    return _exited_status(folder, verdict, content.changed)


def _by_code(folder: Folder) -> ContainerStatus | None:
    end = folder.end()
    code, _, why = end.data.partition(b" ") if end else (b"", b"", b"")
    if end is None or not code.isdigit():
        return None
    reason = OOM_KILLED if why == OOM_KILLED.encode() else "Error" if int(code) else "Completed"
    return _exited_status(folder, Conclusion(int(code), reason, ""), end.changed)


def _exited_status(folder: Folder, verdict: Conclusion, changed: int) -> ContainerStatus:
    started_at, finished_at = _started_at(folder), _second(changed)
    return ContainerStatus(
        key=folder.key,
        state="exited",
        id=_id(folder),
        started_at=started_at,
        finished_at=max(started_at, finished_at) if started_at else finished_at,
        exit_code=verdict.exit_code,
        reason=verdict.reason,
        message=verdict.message,
        termination_message=_termination_message(folder),
    )


def _termination_message(folder: Folder) -> str:
    content = folder.read("message", MESSAGE_LIMIT)
    text = content.data.decode(errors="replace").replace("\0", "\ufffd") if content else ""  # no object may hold a NUL
    return text.encode()[:MESSAGE_LIMIT].decode(errors="ignore")  # a replaced byte takes three


def _started_at(folder: Folder) -> datetime | None:
    content = folder.read("spec.json", 0)
    return _second(content.changed) if content else None


def _second(nanoseconds: int) -> datetime:
    return datetime.fromtimestamp(nanoseconds // 1_000_000_000, UTC)


def _id(folder: Folder) -> str:
    return f"{folder.key.pod_uid}-{folder.key.name}-{folder.key.attempt}"

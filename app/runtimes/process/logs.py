"""Log of a container, made from the raw files of its output. Read and followed by the process runtime, and those with engines.

The container appends to `out` and `err`, whatever becomes of the agent. The agent copies whole lines, stamped, to
`log`, which only grows: an offset in it means the same bytes for ever. `position` notes now and then how far that has
come; from there on, the log's own records tell a restarted agent. A stamp is the time of the raw file's last write when
it was read: exact to a few milliseconds while an agent reads; if none did, the last of what was written.

Raw output that is in the log, and log that has been taken, are given back to the disk by holes in their files. While UNTAKEN of
the log waits for its reader, because the API is away or slow, nothing is stamped. Whoever writes faster than can be stamped and
taken loses what came first: no more than BACKLOG of it waits.
"""

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from app.runtimes.base import ContainerKey
from app.runtimes.logs.log_files import OVERFLOWN, Inotify, punch_hole
from app.runtimes.logs.log_format import LINE_LIMIT, STREAMS, Stream, moment, raw_bytes, stamp
from app.runtimes.process.files import Folder, open_ordinary
from app.structured_logging import Logger

QUIET = 0.02  # seconds without a look after a look: a flood costs 50 looks a second
NOTED_EVERY = 256 * 1024  # bytes of log that a restarted agent may have to count again
POLL = 0.1  # seconds between looks at files that the kernel will not watch
SHARE = 256 * 1024  # raw bytes that one container may be read in one go, each stream
ALL_SHARES = 2 * 1024 * 1024  # raw bytes of all containers in one go, so that the loop stays responsive
KEPT = 1024 * 1024  # raw bytes that stay although they are in the log: more than may have to be stamped again
BACKLOG = 256 * 1024 * 1024  # raw bytes of a stream that may wait to be stamped
UNTAKEN = 64 * 1024 * 1024  # bytes of log that may wait to be taken
FILES: dict[Stream, str] = {"stdout": "out", "stderr": "err"}

logger = Logger(__name__)


class LogPosition(NamedTuple):
    """How far the stamped log goes: its size, the raw bytes in it, and its last stamp in nanoseconds."""

    size: int = 0
    stdout: int = 0
    stderr: int = 0
    stamp: int = 0

    def raw(self, stream: Stream) -> int:
        return self.stdout if stream == "stdout" else self.stderr


class _Raw(NamedTuple):
    size: int
    changed: int  # nanoseconds


class Log:
    """The log of one container. Only one process may hold it."""

    def __init__(self, folder: Folder) -> None:
        self.complete = False  # the container has ended and all of its output is in the log
        self._folder = folder
        self._position: LogPosition | None = None
        self._noted_size = 0
        self._given_back = 0
        self._taken = 0  # whoever reads from here on has what is before

    def read(self, offset: int, limit: int) -> bytes:
        """Stamped bytes from `offset` on; OSError if the log is gone."""
        self._taken = max(self._taken, offset)
        with self._folder.open_folder() as folder, suppress(FileNotFoundError):  # nothing was written
            fd = open_ordinary("log", os.O_RDWR | os.O_APPEND, folder)
            try:
                position = self._load(fd)
                return os.pread(fd, max(0, min(limit, position.size - offset)), offset)
            finally:
                os.close(fd)
        return b""

    def release(self, offset: int) -> None:
        """What is before `offset` may read as zeros from now on."""
        end = (offset // KEPT - 1) * KEPT
        if end <= self._given_back:
            return
        self._given_back = end
        with self._folder.open_folder() as folder:
            _punch(folder, "log", end)

    def drain(self, share: int, *, last: bool) -> int:
        """Stamps up to `share` raw bytes of each stream; with `last` unfinished lines too. How many it were."""
        if self.complete:
            return 0
        used = 0
        with self._folder.open_folder() as folder:
            if self._position and self._position.size - self._taken >= UNTAKEN:
                self._drop(folder)
            elif any(_look(folder, stream).size != (self._position or LogPosition()).raw(stream) for stream in STREAMS):
                fd = open_ordinary("log", os.O_RDWR | os.O_CREAT | os.O_APPEND, folder)
                try:
                    used = self._drain(folder, fd, share, last=last)
                finally:
                    os.close(fd)
                self.complete = last and used == 0
            else:
                self.complete = last
        return used

    def _drop(self, folder: int) -> None:
        """Forget raw output of which too much waits: its reader is away."""
        before = position = self._position or LogPosition()
        for stream in STREAMS:
            position = position._replace(**{stream: _skip(folder, stream, position.raw(stream))})
        if position != before:
            self._position = position
            self._give_back(folder, before, position)
            self._note(folder)

    def _drain(self, folder: int, log: int, share: int, *, last: bool) -> int:
        before = self._load(log)
        position, records = before, []
        for changed, stream in sorted((_look(folder, stream).changed, stream) for stream in STREAMS):
            when = max(changed, position.stamp)
            found, at = _take(folder, stream, position.raw(stream), share, moment(when), last=last)
            if found:
                records.append(found)
                position = position._replace(**{stream: at}, stamp=when)
        if not records:
            return 0
        self._append(log, b"".join(records), position)
        jumped = any(not 0 <= position.raw(each) - before.raw(each) <= share + LINE_LIMIT for each in STREAMS)
        self._give_back(folder, before, position)
        if jumped or position.size - self._noted_size >= NOTED_EVERY:
            self._note(folder)
        return max(0, position.stdout - before.stdout) + max(0, position.stderr - before.stderr)

    def _give_back(self, folder: int, before: LogPosition, now: LogPosition) -> None:
        """Each time that another KEPT bytes are in the log."""
        for stream in STREAMS:
            if now.raw(stream) // KEPT > max(1, before.raw(stream) // KEPT):
                _punch(folder, FILES[stream], (now.raw(stream) // KEPT - 1) * KEPT)

    def _append(self, log: int, records: bytes, position: LogPosition) -> None:
        if os.write(log, records) < len(records):
            os.ftruncate(log, position.size)
            raise OSError("the disk is full")
        self._position = position._replace(size=position.size + len(records))

    def _note(self, folder: int) -> None:
        position = self._position or LogPosition()
        fd = open_ordinary("position", os.O_WRONLY | os.O_CREAT, folder)
        try:
            os.pwrite(fd, b"%020d %020d %020d %020d\n" % position, 0)
        finally:
            os.close(fd)
        self._noted_size = position.size

    def _load(self, log: int) -> LogPosition:
        """The position, at first from disk: what was stamped but not noted is counted, a torn record cut off."""
        if self._position is None:
            noted = self._read_position()
            size = os.fstat(log).st_size
            tail = b""
            while noted.size + len(tail) < size and (more := os.pread(log, size, noted.size + len(tail))):
                tail += more
            whole = tail[: tail.rfind(b"\n") + 1]
            if len(whole) < len(tail):
                os.ftruncate(log, noted.size + len(whole))
            more_raw = raw_bytes(whole)
            self._position = LogPosition(
                min(noted.size, size) + len(whole),
                noted.stdout + more_raw["stdout"],
                noted.stderr + more_raw["stderr"],
                noted.stamp,
            )
        return self._position

    def _read_position(self) -> LogPosition:
        content = self._folder.read("position")
        try:
            return LogPosition(*map(int, content.data.split())) if content else LogPosition()
        except (ValueError, TypeError):
            return LogPosition()


def _look(folder: int, stream: Stream) -> _Raw:
    with suppress(OSError):
        found = os.stat(FILES[stream], dir_fd=folder, follow_symlinks=False)
        return _Raw(found.st_size, found.st_mtime_ns)
    return _Raw(0, 0)


def _take(folder: int, stream: Stream, at: int, share: int, when: bytes, *, last: bool) -> tuple[bytes, int]:
    """Records from a raw file, and where in it the next look begins."""
    try:
        fd = open_ordinary(FILES[stream], os.O_RDONLY, folder)
    except OSError:
        return b"", at
    try:
        at = _newest(fd, at)
        found, end = [], at + share
        while at < end:
            records, used = stamp(os.pread(fd, LINE_LIMIT, at), stream, when, last=last)
            if not used:
                break
            found.append(records)
            at += used
        return b"".join(found), at
    finally:
        os.close(fd)


def _skip(folder: int, stream: Stream, at: int) -> int:
    try:
        fd = open_ordinary(FILES[stream], os.O_RDONLY, folder)
    except OSError:
        return at
    try:
        return _newest(fd, at)
    finally:
        os.close(fd)


def _newest(fd: int, at: int) -> int:
    """Where to go on in a raw file that was read up to `at`: further on, if too much waits."""
    size = os.fstat(fd).st_size
    if size < at:
        at = 0  # the container truncated its own output, by `> /dev/stdout`
    return _next_line(fd, size - BACKLOG // 2) if size - at > BACKLOG else at


def _punch(folder: int, name: str, end: int) -> None:
    with suppress(OSError):
        fd = open_ordinary(name, os.O_WRONLY, folder)
        try:
            punch_hole(fd, end)
        finally:
            os.close(fd)


def _next_line(fd: int, at: int) -> int:
    return at + os.pread(fd, LINE_LIMIT, at).find(b"\n") + 1


class Follower:
    """Stamps the output of running containers as it comes, and tells `grown` whose log has grown.

    Idle containers cost nothing. A first line is stamped at once; after a look there is none for QUIET seconds.
    """

    def __init__(self, grown: Callable[[ContainerKey], None]) -> None:
        self._grown = grown
        self._loop = asyncio.get_running_loop()
        self._logs: dict[ContainerKey, Log] = {}
        self._watched: dict[int, ContainerKey] = {}
        self._watches: dict[ContainerKey, list[int]] = {}
        self._polled: set[ContainerKey] = set()
        self._dirty: dict[ContainerKey, None] = {}  # in the order in which their turn comes
        self._next: asyncio.Handle | None = None
        self._poll: asyncio.Handle | None = None
        self._inotify: Inotify | None = None
        try:
            self._inotify = Inotify()
        except OSError as error:
            logger.warning("inotify is not usable; polling logs of containers", error=error)
        self._listen()

    def follow(self, folder: Folder, log: Log) -> None:
        key = folder.key
        self._logs[key] = log
        try:
            self._watch(folder)
        except OSError:  # no inotify, or no more watches
            self._polled.add(key)
            self._schedule_poll()

    def look(self, key: ContainerKey) -> None:
        """Has the log looked at soon."""
        self._dirty[key] = None
        if self._next is None:
            self._next = self._loop.call_soon(self._turn)

    def forget(self, key: ContainerKey) -> None:
        self._logs.pop(key, None)
        self._dirty.pop(key, None)
        self._polled.discard(key)
        for watch in self._watches.pop(key, ()):
            self._watched.pop(watch, None)
            if self._inotify:
                self._inotify.remove(watch)

    def close(self) -> None:
        for timer in (self._next, self._poll):
            if timer:
                timer.cancel()
        if self._inotify:
            self._loop.remove_reader(self._inotify.fileno())
            self._inotify.close()
            self._inotify = None

    def _watch(self, folder: Folder) -> None:
        if self._inotify is None:
            raise OSError("no inotify")
        watches = self._watches.setdefault(folder.key, [])
        for name in FILES.values():
            watch = self._inotify.add(folder.path / name)
            watches.append(watch)
            self._watched[watch] = folder.key
            if (folder.path / name).stat().st_size:  # of what was written before there was a watch, nothing will tell
                self.look(folder.key)

    def _listen(self) -> None:
        if self._inotify:
            self._loop.add_reader(self._inotify.fileno(), self._on_change, self._inotify)

    def _on_change(self, inotify: Inotify) -> None:
        watches = inotify.read()
        if OVERFLOWN in watches:
            self._dirty.update(dict.fromkeys(self._logs))
        for watch in watches & self._watched.keys():
            self._dirty[self._watched[watch]] = None
        self._turn()

    def _turn(self) -> None:
        """Looks at whose turn it is, up to ALL_SHARES; then deaf for QUIET seconds."""
        if self._next:
            self._next.cancel()
        if self._inotify:
            self._loop.remove_reader(self._inotify.fileno())
        left = ALL_SHARES
        for key in list(self._dirty):
            if left <= 0:
                break
            del self._dirty[key]
            left -= self._drain(key)
        self._next = self._loop.call_later(QUIET, self._on_rest_over)

    def _on_rest_over(self) -> None:
        self._next = None
        if self._dirty:
            self._turn()
        else:
            self._listen()

    def _drain(self, key: ContainerKey) -> int:
        log = self._logs.get(key)
        if log is None:
            return 0
        try:
            used = log.drain(SHARE, last=False)
        except OSError as error:
            logger.warning("cannot read the log of a container", **key.log_fields, error=error)
            return 0
        if used:
            self._grown(key)
        if used >= SHARE:
            self._dirty[key] = None  # there may be more, but others come first
        return used

    def _schedule_poll(self) -> None:
        if self._poll is None and self._polled:
            self._poll = self._loop.call_later(POLL, self._poll_all)

    def _poll_all(self) -> None:
        self._poll = None
        for key in self._polled:
            self.look(key)
        self._schedule_poll()

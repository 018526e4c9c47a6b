"""Users of this machine that pods of a namespace run as, one for each namespace that is not privileged.

The process runtime of a root agent calls it for each new sandbox. A namespace's user follows from its UID, so that it is the same
on every machine with the same range; if another namespace has that one here, it gets the next free one. All that were ever
given are kept in a file, a line each, and never given to another namespace: what the old one left on the machine stays its own.
"""

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

from app.runtimes.base import CreateError

# Above the subordinate ids of useradd (to 600100000), systemd's of containers (to 1879048191) and those that SSSD makes of
# Windows' accounts (to 2000200000); below systemd's foreign ids (from 2147352576) and what does not fit 31 bits.
DEFAULT_RANGE = "2001000000-2068108863"
_RANGE = re.compile(r"([0-9]{1,10})-([0-9]{1,10})")
_LOWEST, _HIGHEST = 1000, 2**31 - 1  # below are accounts of the system; some programs take ids for signed


@dataclass(frozen=True)
class UserRange:
    """Both ends belong to it."""

    first: int
    last: int

    @property
    def size(self) -> int:
        return self.last - self.first + 1

    def __contains__(self, user: int) -> bool:
        return self.first <= user <= self.last

    def __str__(self) -> str:
        return f"{self.first}-{self.last}"


def parse_range(text: str) -> UserRange:
    """Raises ValueError."""
    found = _RANGE.fullmatch(text)
    if not found or not _LOWEST <= int(found[1]) <= int(found[2]) <= _HIGHEST:
        raise ValueError(f"{text} is not a range of user ids such as {DEFAULT_RANGE}, within {_LOWEST}-{_HIGHEST}")
    return UserRange(int(found[1]), int(found[2]))


def is_mapped(users: UserRange, text: str) -> bool:
    """Return whether this user namespace has these ids. `text`: of /proc/self/uid_map."""
    parts = (tuple(map(int, line.split())) for line in text.splitlines())
    return any(inside <= users.first and users.last < inside + count for inside, _, count in parts)


class PodUsers:
    """`file` may be gone: then namespaces get their users anew, which are mostly the same."""

    def __init__(self, file: Path, users: UserRange) -> None:
        self._file, self._range = file, users
        self._given: dict[str, int] = {}
        self._taken: set[int] = set()
        self._load()

    def user_of(self, namespace_uid: str) -> int:
        """Return the namespace's user, which is its group as well. Raises CreateError, OSError."""
        user = self._given.get(namespace_uid)
        if user is None or user not in self._range:
            user = self._find_free(namespace_uid)
            self._append(namespace_uid, user)
        return user

    def _find_free(self, namespace_uid: str) -> int:
        start = int.from_bytes(hashlib.sha256(namespace_uid.encode()).digest()[:8]) % self._range.size
        for step in range(min(self._range.size, len(self._taken) + 1)):
            user = self._range.first + (start + step) % self._range.size
            if user not in self._taken:
                return user
        raise CreateError(f"all user ids of {self._range} were given to namespaces: enlarge JOBPLANE_POD_UID_RANGE")

    def _append(self, namespace_uid: str, user: int) -> None:
        """On disk before a process has it."""
        fd = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            os.write(fd, f"{namespace_uid} {user}\n".encode())
            os.fsync(fd)
        finally:
            os.close(fd)
        self._given[namespace_uid] = user
        self._taken.add(user)

    def _load(self) -> None:
        """A later line of a namespace counts: the range was changed. A torn line is that of a start that never was."""
        try:
            text = self._file.read_text()
        except FileNotFoundError:
            return
        whole = text[: text.rfind("\n") + 1]
        if whole != text:
            os.truncate(self._file, len(whole.encode()))
        for line in whole.splitlines():
            namespace_uid, _, user = line.partition(" ")
            if user.isdecimal():
                self._given[namespace_uid] = int(user)
                self._taken.add(int(user))

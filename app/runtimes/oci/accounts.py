"""Users and groups by name, from /etc/passwd and /etc/group of an image. Called by the oci runtime.

The files are read from the image's layers without following links: no image makes the agent read a file of the host.
"""

import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

LIMIT, MOST = 1 << 20, 16  # bytes of such a file; images whose files are remembered


class Account(NamedTuple):
    """Who a container runs as; `groups` are supplementary ones."""

    user: int
    group: int
    groups: tuple[int, ...] = ()


class Accounts(NamedTuple):
    """What an image has in both files."""

    passwd: str = ""
    group: str = ""


@lru_cache(maxsize=MOST)
def read(store: Path, layers: tuple[str, ...]) -> Accounts:
    """`layers`: their names, lowest first, which say all that is in them."""
    folders = [store / each / "fs" for each in layers]
    return Accounts(_read(folders, "passwd"), _read(folders, "group"))


def find(accounts: Accounts, name: str) -> Account:
    """Of an image's `User`: a name or number, perhaps with a group behind a colon. Raises ValueError if it is not there."""
    user, _, group = name.partition(":")
    entry = next((line for line in _lines(accounts.passwd, 4) if user in (line[0], line[2])), None)
    if entry is None and user and not user.isdecimal():
        raise ValueError(f"unable to find user {user}: no matching entries in passwd file")
    number = int(entry[2]) if entry else int(user or 0)
    own = int(entry[3]) if entry else 0
    if group:
        found = next((line for line in _lines(accounts.group, 3) if group in (line[0], line[2])), None)
        if found is None and not group.isdecimal():
            raise ValueError(f"unable to find group {group}: no matching entries in group file")
        return Account(number, int(found[2]) if found else int(group))
    members = [int(line[2]) for line in _lines(accounts.group, 4) if entry and entry[0] in line[3].split(",")]
    return Account(number, own, tuple(each for each in members if each != own))


def _lines(text: str, least: int) -> list[list[str]]:
    """Fields of whole lines whose third field is a number."""
    split = (line.split(":") for line in text.splitlines())
    return [fields for fields in split if len(fields) >= least and fields[2].isdecimal()]


def _read(layers: Sequence[Path], name: str) -> str:
    for layer in reversed(layers):
        with suppress(OSError):
            folder = os.open(layer / "etc", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
            finally:
                os.close(folder)
            try:
                if stat.S_ISREG(os.fstat(fd).st_mode):
                    return os.read(fd, LIMIT).decode(errors="replace")
            finally:
                os.close(fd)
    return ""

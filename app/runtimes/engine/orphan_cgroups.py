"""Removes cgroups and runc's folders that an engine has lost track of: it was killed as it made or removed their container.
Both runtimes with engines ask, time and again.

A folder that is older than the engine, of a container that it does not know, will never be used again if nobody is in its
cgroups or at work on it: runc, shims and those who call them name the container in their commands. Engines of one machine may
share a place; whose container it was runc has noted down in the folder. What has no such note is nobody's: no engine would
remove it. Nor would one remove a cgroup without a folder. The kernel does not tell how old that is, so it is watched a while.
"""

import json
import os
import re
import shutil
import time
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from app.runtimes.linux import cgroups as cgroup
from app.runtimes.process import process_table

NOTE = "state.json"
AT_LEAST = 5.0  # seconds for which nobody is seen to use a cgroup without a folder
_ID = re.compile(r"[0-9a-f]{64}")
_BEFORE_NOTE = re.compile(r"exec\.fifo|state-\d+")  # what runc makes before it has written one
_ANYWHERE = Path("/")


class Note(NamedTuple):
    """What runc has noted down of a container; of one that it was killed over, nothing."""

    bundle: str = ""
    pid: int = 0
    start: int = 0  # of that process, in clock ticks since boot
    cgroups: frozenset[Path] = frozenset()

    @property
    def lives(self) -> bool:
        process = process_table.look(self.pid)
        return process is not None and process.start == self.start


class Rubbish:
    """Of one engine."""

    def __init__(self) -> None:
        self._parents: set[Path] = set()  # of its containers' cgroups
        self._bare: dict[str, float] = {}  # of those with nothing but cgroups: since when they are seen to be unused

    def remove(
        self, roots: Collection[Path], known: Collection[str], started: float, bundles: Path = _ANYWHERE
    ) -> list[str]:
        """Ids of the containers that something was left of; blocks.

        `roots`: where runc has its folders; `known`: all containers of the engine; `started`: since when that is there, as
        a file's time; `bundles`: where it has those of its containers, if it shares `roots`.
        """
        self._parents = self._parents or _parents(roots, known)
        unknown = {name for place in (*roots, *self._parents) for name in _names(place)}.difference(known)
        found = {id_: self._left(id_, roots, started, bundles) for id_ in unknown}
        unused = {id_: left for id_, left in found.items() if left and not left.is_used()}
        for id_ in _at_work() if unused else ():
            unused.pop(id_, None)
        now = time.monotonic()
        self._bare = {id_: self._bare.get(id_, now) for id_, left in unused.items() if not left.folders}
        due = {id_ for id_, since in self._bare.items() if now - since >= AT_LEAST}
        due |= {id_ for id_, left in unused.items() if left.folders}
        return [id_ for id_ in sorted(due) if unused[id_].remove()]

    def _left(self, id_: str, roots: Iterable[Path], started: float, bundles: Path) -> "_Left | None":
        """Of a container; None if it lives, or is another engine's, or may be just about to be made."""
        folders = [root / id_ for root in roots if (root / id_).is_dir()]
        if not all(_is_older(folder, started) for folder in folders):
            return None
        notes = [read(folder) for folder in folders]
        if any(note is None or note.lives or not _is_below(note.bundle, bundles) for note in notes):
            return None
        return _Left(
            folders, {parent / id_ for parent in self._parents}.union(*(note.cgroups for note in notes if note))
        )


class _Left(NamedTuple):
    """Cgroups that are not there do not matter."""

    folders: Collection[Path]
    cgroups: Collection[Path]

    def is_used(self) -> bool:
        """Whether a process is in a cgroup, or below."""
        try:
            return any(file.read_bytes().strip() for each in self.cgroups for file in each.rglob("cgroup.procs"))
        except OSError:  # it is just being removed
            return True

    def remove(self) -> bool:
        """The folders only after all cgroups, which the kernel keeps while somebody is in them."""
        cgroups = [Path(path) for each in self.cgroups for path, _, _ in os.walk(each, topdown=False)]
        if not cgroup.remove(cgroups):
            return False
        for each in self.folders:
            shutil.rmtree(each, ignore_errors=True)
        return True


def _is_older(folder: Path, moment: float) -> bool:
    with suppress(FileNotFoundError):
        return folder.stat().st_ctime < moment
    return False


def read(folder: Path) -> Note | None:
    """None if it is not understood: another program than runc has made it."""
    try:
        found = json.loads((folder / NOTE).read_bytes())
        labels = dict(label.partition("=")[::2] for label in found["config"]["labels"] or ())
        cgroups = frozenset(Path(path) for path in found["cgroup_paths"].values() if folder.name in Path(path).name)
        return Note(labels["bundle"], found["init_process_pid"], found["init_process_start"], cgroups)
    except FileNotFoundError:
        return Note() if _has_no_more_than(_BEFORE_NOTE, folder) else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _has_no_more_than(names: re.Pattern[str], folder: Path) -> bool:
    with suppress(OSError):
        return all(names.fullmatch(name) for name in os.listdir(folder))
    return False


def _parents(roots: Iterable[Path], known: Collection[str]) -> set[Path]:
    """Where the engine has its containers' cgroups: one of its containers tells for all."""
    for root in roots:
        for id_ in _names(root).intersection(known):
            if (note := read(root / id_)) and note.cgroups:
                return {path.parent for path in note.cgroups}
    return set()


def _names(place: Path) -> set[str]:
    with suppress(OSError):
        return {name for name in os.listdir(place) if _ID.fullmatch(name)}
    return set()


def _is_below(bundle: str, bundles: Path) -> bool:
    return not bundle or Path(bundle).is_relative_to(bundles)


def _at_work() -> set[str]:
    """Containers that a process names in its command."""
    found: set[str] = set()
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with suppress(OSError):
                words = Path("/proc", name, "cmdline").read_bytes().decode(errors="replace")
                found.update(_ID.findall(words))
    return found

"""What runc leaves of a container when it dies over it: a folder and cgroups, made by hand after those of one that runs."""

import json
import os
import secrets
import shutil
from collections.abc import Collection
from pathlib import Path
from typing import Any

from app.runtimes.engine.orphan_cgroups import NOTE
from app.runtimes.linux import cgroups
from app.runtimes.process import process_table

DEAD = 2**22 + 1  # no process has this number


class Remains:
    """Of a container that no engine knows. `like`: runc's folder of one that runs."""

    def __init__(self, like: Path) -> None:
        self.id = secrets.token_hex(32)
        self.folder = like.with_name(self.id)
        self._note = (like / NOTE).read_text(encoding="utf-8").replace(like.name, self.id)
        self.cgroups = {Path(path) for path in json.loads(self._note)["cgroup_paths"].values()}

    def in_scopes(self) -> "Remains":
        """As if systemd made its cgroups."""
        self.cgroups = {each.with_name(f"docker-{self.id}.scope") for each in self.cgroups}
        self._note = self._note.replace(f'/{self.id}"', f'/docker-{self.id}.scope"')
        return self

    def make_cgroups(self) -> "Remains":
        for each in self.cgroups:
            each.mkdir()
        return self

    def make_cgroups_with(self, pid: int) -> "Remains":
        """It is in one cgroup, first of all: not all take somebody without being set up."""
        pids = {each for each in self.cgroups if "pids" in each.parts} or self.cgroups
        taken = next(iter(pids))
        taken.mkdir()
        (taken / "cgroup.procs").write_text(str(pid), encoding="ascii")
        for each in self.cgroups - {taken}:
            each.mkdir()
        return self

    def make_folder(self) -> "Remains":
        """As runc makes it first."""
        self.folder.mkdir()
        for name in ("exec.fifo", "state-1234"):
            (self.folder / name).touch()
        return self

    def note(self, pid: int = DEAD, bundle: str = "") -> "Remains":
        """What runc writes into it then. `pid`: its first process; `bundle`: if it is not the engine's."""
        found: dict[str, Any] = json.loads(self._note)
        process = process_table.look(pid)
        found |= {"init_process_pid": pid, "init_process_start": process.start if process else 1}
        if bundle:
            found["config"]["labels"] = [f"bundle={bundle}"]
        (self.folder / NOTE).write_text(json.dumps(found), encoding="utf-8")
        return self

    def left(self) -> Collection[Path]:
        return {each for each in (self.folder, *self.cgroups) if each.exists()}

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        for each in self.cgroups:
            assert cgroups.remove(Path(path) for path, _, _ in os.walk(each, topdown=False)), each

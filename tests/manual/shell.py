"""The shell of a reader: runs a page's commands in one folder, `jobplane up` in the background."""

import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx
import yaml

from tests.e2e import preloaded
from tests.e2e.cluster import environment, free_port, until
from tests.e2e.migrated_postgres import copy_into
from tests.e2e.secret_values import KNOWN, dsn_of, dump_database, find_leaks

ROOT = Path(__file__).parents[2]
# Services are processes of their own.
PROGRAM = """#!/bin/sh
case "$1" in
up | api) exec {python} -m app.main.cli "$@" ;;
*) exec {preloaded} "$@" ;;
esac
"""
SECONDS = 120
ENCRYPTED = "JOBPLANE_SECRETS_KEY_FILE"


class Shell:
    """One bash, so that variables and folders last from command to command. `stand_ins`: by what a page's text is replaced.

    `jobplane up` goes on in the background, and the next command runs once its node is ready.
    """

    def __init__(self, folder: Path, stand_ins: Mapping[str, str] | None = None, **variables: str) -> None:
        self.folder = folder
        self._stand_ins = stand_ins or {}
        self._port = free_port()
        self._services: list[subprocess.Popen[bytes]] = []
        self._data_folders: set[Path] = set()  # of `jobplane up`
        self._state = folder.with_name("state")
        self._state.write_text("")
        program = folder.with_name("bin") / "jobplane"
        program.parent.mkdir()
        program.write_text(PROGRAM.format(python=sys.executable, preloaded=preloaded.program()))
        program.chmod(0o755)
        self._environment = environment(
            PATH=f"{program.parent}:{os.environ['PATH']}",
            HOME=str(folder),
            JOBPLANE_PORT=str(self._port),
            PYTHONPATH=str(ROOT),
            COLUMNS="140",
            **variables,
        )
        self._environment.pop("KUBECONFIG", None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with tempfile.TemporaryDirectory(prefix="jobplane-dump-") as dump:
            try:
                if kind is None:
                    self._dump(Path(dump))
            finally:
                self._stop()
            if kind is None:
                self._look_for_secrets(Path(dump))

    def _dump(self, folder: Path) -> None:
        """Write the databases of what runs, for the search for secret values."""
        for data in self._data_folders:
            KNOWN.note_folder(data)
            (folder / data.name).mkdir()
            dump_database(dsn_of(data), folder / data.name, encrypted=ENCRYPTED in self._state.read_text())

    def _look_for_secrets(self, dump: Path) -> None:
        logs = [*self.folder.parent.glob("*.log"), dump]
        for data in self._data_folders:
            found = find_leaks(data, logs, encrypted=ENCRYPTED in self._state.read_text())
            assert found == [], "\n".join(map(str, found))

    def _stop(self) -> None:
        for each in reversed(self._services):
            each.send_signal(signal.SIGTERM)
            try:
                each.wait(60)
            finally:
                each.kill()

    def run(self, line: str) -> tuple[int, str]:
        """Run a command line as it stands; return its exit code, and what it printed to both streams."""
        line = line.replace(":6443", f":{self._port}")
        for text, stand_in in self._stand_ins.items():
            line = line.replace(text, stand_in)
        words = shlex.split(line.partition("#")[0])
        if words[:2] == ["jobplane", "up"]:
            self._start(words)
            return 0, ""
        keep = f'declare -px >{self._state}; echo "cd \\"$PWD\\"" >>{self._state}'
        script = f". {self._state}\n{line}\ncode=$?\n{keep}\nexit $code\n"
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        return done.returncode, done.stdout

    def _start(self, words: list[str]) -> None:
        log = self.folder.with_name(f"{words[1]}-{len(self._services)}.log")
        # The tutorial, which names no folder, starts with nothing at all; the others need not show that again.
        if "--data-dir" in words and not (data := self._data_folder(words)).exists():
            copy_into(data)
        with log.open("wb") as out:
            # With the variables that the page has set.
            run = ["bash", "-c", f". {self._state} && exec {shlex.join(words)}"]
            process = subprocess.Popen(run, cwd=self.folder, env=self._environment, stdout=out, stderr=out)
        self._services.append(process)

        def is_ready() -> bool:
            assert process.poll() is None, log.read_text()
            return "API is serving" in log.read_text() and self._has_ready_node(words)

        until(is_ready, SECONDS, f"{words[1]} is ready; see {log}")

    def _data_folder(self, words: list[str]) -> Path:
        return self.folder / (words[words.index("--data-dir") + 1] if "--data-dir" in words else ".jobplane")

    def _has_ready_node(self, words: list[str]) -> bool:
        data = self._data_folder(words)
        self._data_folders.add(data)
        kubeconfig = yaml.safe_load((data / "kubeconfig").read_text())
        server, user = kubeconfig["clusters"][0]["cluster"]["server"], kubeconfig["users"][0]["user"]
        headers = {"Authorization": f"Bearer {user['token']}"}
        nodes = httpx.get(f"{server}/api/v1/nodes", headers=headers, verify=False).json().get("items", [])
        conditions = [each for node in nodes for each in node["status"].get("conditions", [])]
        return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)

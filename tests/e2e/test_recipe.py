"""The manual's recipe for several machines, run line by line as it stands: it ends with a kubeconfig that works."""

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e import processes
from tests.e2e.cluster import UNEXPECTED, environment, free_port, until
from tests.e2e.kubectl import found

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "how-to" / "run-the-parts.md"
SECONDS = 60
RUNNING = ("api", "controllers", "agent")


def recipe() -> list[str]:
    section = PAGE.read_text().partition("\n## Commands\n")[2].partition("\n## ")[0]
    lines = section.split("```\n")[1].splitlines()
    return [line.partition("  #")[0].strip() for line in lines if line.strip()]


class Shell:
    """One that runs the lines in a folder of its own, those of services in the background. Whatever they write is there."""

    def __init__(self, folder: Path, dsn: str) -> None:
        self.folder, self.port = folder, free_port()
        self._services: dict[str, subprocess.Popen[bytes]] = {}
        program = folder / "bin" / "jobplane"
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -m app.main.cli "$@"\n')
        program.chmod(0o755)
        self._environment = environment(
            PATH=f"{program.parent}:{os.environ['PATH']}",
            HOME=str(folder),
            JOBPLANE_PORT=str(self.port),
            JOBPLANE_DATABASE_URL=dsn,
            PYTHONPATH=str(ROOT),
        )

    def log(self, service: str) -> str:
        return (self.folder / f"{service}.log").read_text()

    def run(self, line: str) -> str:
        """The line as it stands, but for the address of the API, and the database's."""
        line = line.replace("//api:6443", f"//localhost:{self.port}")
        if line.startswith("export JOBPLANE_DATABASE_URL="):
            return ""
        service = next((each for each in RUNNING if line.startswith(f"jobplane {each} ")), None)
        if service:
            self._start(service, line)
            return ""
        done = subprocess.run(
            f"umask 077; {line}",
            shell=True,
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, f"{line}: {done.stderr}"
        return done.stdout

    def _start(self, service: str, line: str) -> None:
        with (self.folder / f"{service}.log").open("wb") as log:
            self._services[service] = subprocess.Popen(
                shlex.split(line), cwd=self.folder, env=self._environment, stdout=log, stderr=log
            )
        if service == "api":
            until(lambda: "API is serving" in self.log("api"), SECONDS, "the API serves")

    def stop(self) -> None:
        for service in reversed(self._services.values()):
            service.send_signal(signal.SIGTERM)
        codes = [each.wait(SECONDS) for each in self._services.values()]
        for each in processes.naming(f"{self.folder}/"):
            processes.kill(each.pid)
        assert codes == [0] * len(codes)


@pytest.fixture
def shell(dsn: str, tmp_path: Path) -> Iterator[Shell]:
    made = Shell(tmp_path, dsn)
    yield made
    made.stop()


def kubectl(shell: Shell, *arguments: str, code: int = 0) -> str:
    command = [found()[-1], "--kubeconfig", shell.folder / "kubeconfig", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False, cwd=shell.folder)
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


@pytest.mark.skipif(not found(), reason="no kubectl")
def test_the_recipe_for_several_machines_ends_with_a_kubeconfig_that_works(shell: Shell) -> None:
    lines = recipe()
    assert [line.split()[1] for line in lines if line.startswith("jobplane ")] == [
        "migrate", "api", "controllers", "kubeconfig", "token", "agent"
    ]  # fmt: skip
    for line in lines:
        shell.run(line)

    kubectl(shell, "wait", "--for=create", "node/worker-1", f"--timeout={SECONDS}s")
    kubectl(shell, "wait", "--for=condition=Ready", "node/worker-1", f"--timeout={SECONDS}s")
    kubectl(shell, "create", "job", "hello", "--image=i", "--", "echo", "hello from", "worker-1")
    kubectl(shell, "wait", "--for=condition=complete", "job/hello", f"--timeout={SECONDS}s")
    assert kubectl(shell, "logs", "job/hello") == "hello from worker-1\n"
    modes = {name: (shell.folder / name).stat().st_mode & 0o777 for name in ("kubeconfig", "worker-1.token")}
    assert set(modes.values()) == {0o600}

    said = shell.log("api")
    assert f"API is serving  address=https://0.0.0.0:{shell.port}\n" in said
    assert "kubectl --kubeconfig" not in said  # there is none in its folder
    assert "jobplane kubeconfig --server" in said
    assert not any(UNEXPECTED.search(shell.log(each)) for each in RUNNING)

    # Its token is one among others, and ends when it is revoked.
    shown = [re.split(r" {2,}", line.strip()) for line in shell.run("jobplane token list").splitlines()]
    ids = {row[1]: row[0] for row in shown}
    assert ids.keys() == {"TYPE", "Admin", "Node"}
    assert shell.run(f"jobplane token revoke {ids['Admin']}") == f"{ids['Admin']} is revoked\n"
    until(lambda: "Unauthorized" in refused(shell) or "logged in" in refused(shell), SECONDS, "the token has ended")


def refused(shell: Shell) -> str:
    command = [found()[-1], "--kubeconfig", shell.folder / "kubeconfig", "get", "nodes"]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False).stderr

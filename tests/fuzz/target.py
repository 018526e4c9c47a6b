"""An API in a process of its own for fuzzers to shoot at: what `jobplane api` starts, on plain HTTP."""

import os
import re
import secrets
import subprocess
import sys
from pathlib import Path
from typing import Self

import httpx

from tests.conftest import NO_TLS
from tests.e2e.cluster import environment, free_port, until

READY_SECONDS = 60
STOP_SECONDS = 30
REQUESTS = int(os.environ.get("JOBPLANE_FUZZ_REQUESTS", "1000"))  # of all fuzzers together, about
SHARES = {"bodies": 0.94, "schemathesis": 0.06}  # the latter takes its time to think
SEED = int(os.environ.get("JOBPLANE_FUZZ_SEED", "0"))
# What no log may hold: an error that nobody foresaw.
UNEXPECTED = re.compile(r"unexpected error|Traceback|never retrieved|ERROR|could not write|refused the write")


class Target:
    """The process. As a context manager it starts, and at the end proves that it met nothing unexpected."""

    def __init__(self, folder: Path, dsn: str) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.admin, self.agent = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        self.log = folder / "api.log"
        self._folder = folder
        self._dsn = dsn
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        for name, token in (("admin", self.admin), ("agent", self.agent)):
            (self._folder / f"{name}.token").write_text(token)
        given = ("--no-tls", "--port", str(self.port), "--data-dir", str(self._folder), "--database-url", self._dsn)
        gates = ("--feature-gates", "GenericWorkload=true")  # every kind is served
        command = (sys.executable, "-m", "app.main.cli", "api", *given, *gates)
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, env=environment())
        until(self._is_ready, READY_SECONDS, "the API answers")
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        is_alive = self._process.poll() is None
        self._process.terminate()
        self._process.wait(STOP_SECONDS)
        assert is_alive, f"the API has ended by itself:\n{self.said()}"
        assert not UNEXPECTED.search(self.said()), self.said()

    def client(self) -> httpx.Client:
        """An administrator's."""
        headers = {"Authorization": f"Bearer {self.admin}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=30, verify=NO_TLS)

    def said(self) -> str:
        """The end of its log."""
        return self.log.read_text(errors="replace")[-20_000:]

    def _is_ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self.said()
        try:
            return httpx.get(f"{self.url}/readyz", verify=NO_TLS).status_code == 200
        except httpx.TransportError:
            return False

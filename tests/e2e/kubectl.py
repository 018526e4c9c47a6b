"""Every kubectl that this machine has, oldest first, and how the tests call them."""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.cluster import Cluster

_NUMBERED = re.compile(r"kubectl\.(\d+)\.(\d+)$")
SECONDS = 60


def found() -> list[Path]:
    """Those that JOBPLANE_KUBECTLS names; else the numbered ones beside the one on PATH; else that one."""
    if given := os.environ.get("JOBPLANE_KUBECTLS"):
        return [Path(each) for each in given.split(os.pathsep)]
    on_path = shutil.which("kubectl")
    if on_path is None:
        return []
    beside = Path(on_path).resolve().parent.glob("kubectl.1.*")
    return sorted(filter(_is_numbered, beside), key=_number) or [Path(on_path)]


def _is_numbered(path: Path) -> bool:
    return _NUMBERED.search(path.name) is not None


def _number(path: Path) -> tuple[int, ...]:
    return tuple(int(part) for part in path.name.split(".")[1:])


@dataclass(frozen=True)
class Kubectl:
    """One version of it, with a configuration and caches of its own."""

    path: Path
    cluster: Cluster
    home: Path
    namespace: str = "default"

    def __call__(self, *arguments: str, code: int = 0, stdin: str = "", env: Mapping[str, str] | None = None) -> str:
        """What it prints, on either stream. It must end with `code`."""
        with self.start(*arguments, env=env) as running:
            try:
                out, _ = running.communicate(stdin, timeout=SECONDS)
            finally:
                running.kill()
        assert running.returncode == code, f"{self.path.name} {' '.join(arguments)}: {running.returncode}\n{out}"
        return out

    def start(self, *arguments: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        variables = {"HOME": str(self.home), "PATH": os.environ["PATH"], "KUBECONFIG": str(self.cluster.kubeconfig)}
        return subprocess.Popen(
            [str(self.path), "--namespace", self.namespace, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=variables | dict(env or {}),
        )

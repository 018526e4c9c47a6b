"""Programs of Go modules, built once under `.clients/`, and the folders of their source, which have their manifests.

A module is fetched by the Go command, through the module proxy and with its checksum database, into the user's module cache.
"""

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.environments import HOME, made_once
from tests.needs import lacking

_BUILD_SECONDS = 3600
_FLAGS = "-p=2 -buildvcs=false -trimpath"


@dataclass(frozen=True)
class Source:
    """A module at a version, and the package in it that is the operator's manager."""

    name: str
    module: str
    version: str
    package: str = "."


@dataclass(frozen=True)
class Built:
    """`program`: what was built. `source`: the module's folder in the module cache, which is read-only."""

    program: Path
    source: Path


def build(what: Source) -> Built:
    """Fetch and build what is not there yet. Skips the test where there is no Go."""
    go = shutil.which("go") or shutil.which("/usr/local/go/bin/go")
    if go is None:
        lacking("no Go: install it from https://go.dev/dl, at the version that the operators' go.mod asks for")
    source = _download(go, what)
    folder = HOME / f"{what.name}-{what.version}"
    program = folder / what.name
    with made_once(folder) as missing:
        if missing:
            _run([go, "build", "-o", str(program), what.package], source)
    return Built(program, source)


def _download(go: str, what: Source) -> Path:
    found = _run([go, "mod", "download", "-json", f"{what.module}@{what.version}"], HOME.parent)
    return Path(json.loads(found)["Dir"])


def _run(command: list[str], folder: Path) -> str:
    """At low priority: others measure time while this compiles."""
    ran = subprocess.run(
        ["nice", "-n", "19", *command],
        cwd=folder,
        env={**os.environ, "GOFLAGS": _FLAGS},
        capture_output=True,
        text=True,
        timeout=_BUILD_SECONDS,
        check=False,
    )
    assert ran.returncode == 0, f"{' '.join(command)}\n{ran.stdout}{ran.stderr}"
    return ran.stdout

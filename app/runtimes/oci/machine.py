"""Machine of the oci runtime: which programs it has, and which capabilities the agent may give to containers."""

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from app.runtimes.base import UnfitMachineError
from app.runtimes.linux import folder_removal
from app.runtimes.oci import user_namespace
from app.runtimes.oci.user_namespace import UserNamespace

PROGRAMS = {"skopeo": "skopeo", "crun": "crun", "unshare": "util-linux", "nsenter": "util-linux", "mount": "mount"}
_NAMES = """
    CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE NET_BIND_SERVICE NET_BROADCAST
    NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT SYS_PTRACE SYS_PACCT SYS_ADMIN SYS_BOOT SYS_NICE
    SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE MAC_ADMIN SYSLOG WAKE_ALARM
    BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE
"""
CAPABILITIES = tuple(f"CAP_{name}" for name in _NAMES.split())  # by their numbers in the kernel
_PATIENCE = 60  # seconds: a host that is busy is none that refuses
_IMPOSSIBLE = frozenset(",:\\ \t\n")  # in overlayfs' options, and in lists of mounts


Obstacle = Callable[[Path], str]


def check_programs() -> None:
    """Raises UnfitMachineError."""
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        packages = " ".join(dict.fromkeys(PROGRAMS[name] for name in missing))
        raise UnfitMachineError(f"the oci runtime needs {', '.join(missing)}: apt-get install {packages}")


def find_obstacle(folder: Path) -> str:
    """Return why this machine, or the disk of a folder, cannot have containers; empty if they can be had. The folder is made."""
    try:
        check_programs()
        check_place(folder.resolve())
        namespace = user_namespace.find()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as place:
            return _try_overlay(Path(place), namespace)
    except (RuntimeError, OSError) as error:
        return str(error)


def _try_overlay(place: Path, namespace: UserNamespace) -> str:
    for name in ("lower", "upper", "work", "root"):
        (place / name).mkdir()
    script = "mount -t overlay overlay -o lowerdir=lower,upperdir=upper,workdir=work root"
    command = [*namespace.inside, "unshare", "--mount", "--uts", "--ipc", "--", "/bin/sh", "-c", script]
    tried = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False, timeout=_PATIENCE)
    folder_removal.remove([place / "work"], namespace.inside)
    return f"overlayfs does not work in {place.parent}: {tried.stderr.strip()}" if tried.returncode else ""


def check_place(path: Path) -> None:
    """Whether containers or images can be kept there; it need not exist. Raises UnfitMachineError, OSError."""
    if _IMPOSSIBLE & set(str(path)):
        raise UnfitMachineError(
            f"the oci runtime cannot keep containers in {path}: choose a folder without spaces, commas and colons"
        )
    if find_file_system(Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace"), path) == "overlay":
        raise UnfitMachineError(
            f"{path} is itself on overlayfs, as folders in a container are, and overlayfs cannot stack on that: "
            "mount a volume of the machine (docker run -v) and choose a --data-dir on it, or use --runtime process"
        )


def find_file_system(mounts: str, path: Path) -> str:
    """The kind of file system that a path is on, or would be. `mounts`: as in /proc/PID/mountinfo; later ones cover others."""
    found, longest = "", -1
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        at = before.split()[4]
        if len(at) >= longest and path.is_relative_to(at):
            found, longest = after.split()[0], len(at)
    return found


def bounding_set(status: str) -> Sequence[str]:
    """Capabilities that a process may have, of its /proc/PID/status."""
    bits = next((int(line.split()[1], 16) for line in status.splitlines() if line.startswith("CapBnd:")), 0)
    return [name for number, name in enumerate(CAPABILITIES) if bits >> number & 1]

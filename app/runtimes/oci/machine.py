"""Machine of the oci runtime: which programs it has, and which capabilities the agent may give to containers."""

import shutil
from collections.abc import Sequence
from pathlib import Path

PROGRAMS = {"skopeo": "skopeo", "crun": "crun", "unshare": "util-linux", "nsenter": "util-linux", "mount": "mount"}
_NAMES = """
    CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE NET_BIND_SERVICE NET_BROADCAST
    NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT SYS_PTRACE SYS_PACCT SYS_ADMIN SYS_BOOT SYS_NICE
    SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE MAC_ADMIN SYSLOG WAKE_ALARM
    BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE
"""
CAPABILITIES = tuple(f"CAP_{name}" for name in _NAMES.split())  # by their numbers in the kernel
_IMPOSSIBLE = frozenset(",:\\ \t\n")  # in overlayfs' options, and in lists of mounts


def check_programs() -> None:
    """Raises RuntimeError."""
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        packages = " ".join(dict.fromkeys(PROGRAMS[name] for name in missing))
        raise RuntimeError(f"the oci runtime needs {', '.join(missing)}: apt-get install {packages}")


def check_path(path: Path) -> None:
    """Raises RuntimeError."""
    if _IMPOSSIBLE & set(str(path)):
        raise RuntimeError(
            f"the oci runtime cannot keep containers in {path}: choose a folder without spaces, commas and colons"
        )


def bounding_set(status: str) -> Sequence[str]:
    """Capabilities that a process may have, of its /proc/PID/status."""
    bits = next((int(line.split()[1], 16) for line in status.splitlines() if line.startswith("CapBnd:")), 0)
    return [name for number, name in enumerate(CAPABILITIES) if bits >> number & 1]

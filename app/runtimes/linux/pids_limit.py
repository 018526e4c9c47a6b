"""Process limit of a container that an engine has started. Called by the cri runtime: CRI has no field for it."""

from pathlib import Path

_VERSION_1, _VERSION_2 = Path("/sys/fs/cgroup/pids"), Path("/sys/fs/cgroup")


def set_limit(pid: int, container_id: str, most: int) -> bool:
    """Write `pids.max` of the cgroup that a container's process is in. False if it is in none of its own, or may not.

    Raises FileNotFoundError, ProcessLookupError for one that has just ended.
    """
    for line in Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8").splitlines():
        _, names, path = line.split(":", 2)
        root = _VERSION_1 if "pids" in names.split(",") else _VERSION_2
        file = root / path.lstrip("/") / "pids.max"
        if container_id in path and (names == "" or root == _VERSION_1) and file.exists():
            try:
                file.write_text(str(most), encoding="ascii")
            except PermissionError:
                return False
            return True
    return False

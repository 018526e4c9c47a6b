"""hostPath volumes: what must be at a path of the node, or is made there. `volumes` calls `checked`."""

import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path

from app.agent.pods.environment import ConfigError
from app.kinds.pod.volume import HostPathVolumeSource

_FOLDER_MODE, _FILE_MODE = 0o755, 0o644
_TYPES: Mapping[str, tuple[Callable[[int], bool], str]] = {
    "Directory": (stat.S_ISDIR, "a directory"),
    "File": (stat.S_ISREG, "a file"),
    "Socket": (stat.S_ISSOCK, "a socket file"),
    "CharDevice": (stat.S_ISCHR, "a character device"),
    "BlockDevice": (stat.S_ISBLK, "a block device"),
}
_OR_CREATE = "OrCreate"


def checked(source: HostPathVolumeSource) -> Path:
    """The path, if it is of the type that is asked for. Raises ConfigError, OSError."""
    path = Path(source.path)
    if not path.is_absolute() or ".." in path.parts:
        raise ConfigError(f"hostPath {source.path} is not an absolute path")
    if not path.exists():
        _make(path, source.type)
    if source.type:
        is_right, what = _TYPES[source.type.removesuffix(_OR_CREATE)]
        if not path.exists() or not is_right(path.stat().st_mode):
            raise ConfigError(f"hostPath type check failed: {source.path} is not {what}")
    return path


def _make(path: Path, kind: str) -> None:
    """Without a type, engines make a folder of what is missing; so it is done here, for all of them alike."""
    if kind in ("", "DirectoryOrCreate"):
        path.mkdir(parents=True, exist_ok=True)
        path.chmod(_FOLDER_MODE)
    elif kind == "FileOrCreate":
        os.close(os.open(path, os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_WRONLY, _FILE_MODE))
        path.chmod(_FILE_MODE)

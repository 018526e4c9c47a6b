"""Program lookup: whether a command names a program; the same for containers and for `exec`."""

import os
from collections.abc import Callable

from app.runtimes.base import StartError


def check(name: str, path: str, working_dir: str, seen: Callable[[str], str]) -> None:
    """`seen` tells where on this host a path of the container's is. Raises StartError, worded as container runtimes do."""
    if "/" not in name:
        folders = (os.path.join(working_dir, folder or ".", name) for folder in path.split(":"))
        if not any(_is_executable(seen(each)) for each in folders):
            raise StartError(f'exec: "{name}": executable file not found in $PATH', 127)
        return
    file = seen(os.path.normpath(os.path.join(working_dir, name)))
    if not os.path.exists(file):
        raise StartError(f'exec: "{name}": stat {name}: no such file or directory', 127)
    if os.path.isdir(file):
        raise StartError(f'exec: "{name}": is a directory', 126)
    if not os.access(file, os.X_OK):
        raise StartError(f'exec: "{name}": permission denied', 126)


def _is_executable(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)

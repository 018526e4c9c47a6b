"""Environment of a container: variables that are held back until its command runs, and names that a shell drops.

`launch` and `sessions` call it. The shim, bubblewrap, nsenter and setpriv run with the agent's rights and the container's
environment. A variable that tells programs what to load or run, such as LD_PRELOAD, would give the agent's rights to the pod.
These are held back in one variable that nothing reads, until `env` sets them with the container's own rights.
"""

import json
import os
import re
import sys
from collections.abc import Mapping, Sequence

from app.runtimes.base import StartError

# What glibc ignores for setuid programs (but for TMPDIR, which loads nothing), and what bash reads before a script.
_LOADS = re.compile(
    r"LD_.*|GLIBC_TUNABLES|GCONV_PATH|GETCONF_DIR|HOSTALIASES|LOCALDOMAIN|LOCPATH|MALLOC_.*|NIS_PATH|NLSPATH"
    r"|RESOLV_HOST_CONF|RES_OPTIONS|TZDIR|ENV|BASH_.*|SHELLOPTS|BASHOPTS|PS4"
)
_SHELL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HELD, _ODD = "JOBPLANE_HELD_ENVIRONMENT", "JOBPLANE_ODD_ENVIRONMENT"  # their values are JSON
_ENV = "/usr/bin/env"
_PLAIN = ("/bin/sh", "-c", 'exec "$@"', "sh")  # `env` would set what has "=" in its name
_PYTHONS = ("/usr/bin/python3", "/usr/local/bin/python3")  # that any user may run, unlike ours
_WITH_ODD_NAMES = (
    "import json, os, sys\n"
    f"env = dict(os.environ); env.update(json.loads(env.pop('{_ODD}')))\n"
    "os.execvpe(sys.argv[1], sys.argv[1:], env)"
)


def hold(env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment in which no program that runs before the command loads what the pod says."""
    held = {name: value for name, value in env.items() if _LOADS.fullmatch(name)}
    rest = {name: value for name, value in env.items() if name not in held and name not in (_HELD, _ODD)}
    return {**rest, _HELD: json.dumps(held)} if held else rest


def without_loading(env: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without what `hold` would hold back: that of a container which an older agent has started."""
    return {name: value for name, value in env.items() if not _LOADS.fullmatch(name)}


def with_held(argv: Sequence[str], env: Mapping[str, str]) -> list[str]:
    """Return the command that sets what `hold` held back, to be run with the container's rights."""
    if _HELD not in env:
        return list(argv)
    variables = [f"{name}={value}" for name, value in json.loads(env[_HELD]).items()]
    return [_ENV, "-u", _HELD, *variables, *(_PLAIN if "=" in argv[0] else ()), *argv]


def with_odd_names(argv: Sequence[str], env: Mapping[str, str]) -> list[str]:
    """Return a further command for an environment that was made by `split_odd_names`."""
    python = next((each for each in _PYTHONS if os.path.exists(each)), sys.executable)
    return [python, "-ISc", _WITH_ODD_NAMES, *argv] if _ODD in env else list(argv)


def split_odd_names(argv: Sequence[str], env: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """Return command and environment. Kubernetes allows names such as `my.name`, which a shell drops: then Python sets them.

    Raises StartError.
    """
    odd = {name: value for name, value in env.items() if not _SHELL_NAME.fullmatch(name)}
    if not odd:
        return list(argv), dict(env)
    if wrong := [name for name, value in odd.items() if not name or "=" in name or "\0" in name + value]:
        raise StartError(f'environment variable "{wrong[0]}" has an impossible name or value')
    plain = {name: value for name, value in env.items() if name not in odd}
    return [sys.executable, "-ISc", _WITH_ODD_NAMES, *argv], {**plain, _ODD: json.dumps(odd)}

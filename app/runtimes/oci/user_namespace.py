"""User namespace of an ordinary user: the words before a command by which it runs as root of one. Called by the oci runtime.

With a range of users in /etc/subuid, set by newuidmap, files and processes may be of 65536 users; else only of the agent's.
"""

import os
import subprocess
from typing import NamedTuple

_PATIENCE = 60  # seconds: a host that is busy is none that refuses
_MAPPINGS = (("--map-auto", "--map-root-user"), ("--map-root-user",))


class UserNamespace(NamedTuple):
    """`unshare`: arguments that make one, empty for root. `has_users`: whether there is more than one user in it."""

    unshare: tuple[str, ...] = ()
    has_users: bool = True

    @property
    def inside(self) -> tuple[str, ...]:
        """Words before a command that runs in one of its own, with the same users."""
        return ("unshare", *self.unshare, "--") if self.unshare else ()


def find() -> UserNamespace:
    """The best that this user may have. Raises RuntimeError if there is none."""
    if os.geteuid() == 0:
        return UserNamespace()
    said = ""
    for mapping in _MAPPINGS:
        unshare = ("--user", "--mount", *mapping)
        try:
            tried = subprocess.run(
                ["unshare", *unshare, "true"],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_PATIENCE,
                check=False,
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise RuntimeError(f"the oci runtime needs the program unshare (package util-linux): {error}") from error
        if tried.returncode == 0:
            return UserNamespace(unshare, len(mapping) > 1)
        said = tried.stderr.strip()
    raise RuntimeError(
        f"the oci runtime needs user namespaces, which this machine refuses to an ordinary user ({said}): "
        "allow them (sysctl kernel.unprivileged_userns_clone, user.max_user_namespaces, AppArmor), or run the agent as root"
    )

"""Execs a program of the Postgres server: `python launch.py PARENT UID GID FOLDER PROGRAM ARGUMENT...`.

Run by `app.postgres.embedded_postgres` as a script, so that nothing of ours runs between fork and exec. Gives up root
(uid -1 keeps the user), asks Linux for SIGINT, Postgres' fast shutdown, when PARENT ends, and execs. FOLDER is opened before
root is given up: if the account may not walk to it (a clone under a 0700 /root), arguments that name it name the descriptor.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
NOT_EXECUTABLE = 126  # exit code: the account may not read or run the program


def _become(uid: int, gid: int) -> None:
    os.setgroups([gid])
    os.setgid(gid)
    os.setuid(uid)


def _alias(folder: str, descriptor: int) -> str:
    """A name of the folder that the account can use."""
    if os.access(folder, os.R_OK | os.X_OK) or not sys.platform.startswith("linux"):
        return folder
    os.set_inheritable(descriptor, True)
    return f"/proc/self/fd/{descriptor}"


def _end_with(parent: int) -> None:
    """After the change of user, which would clear the wish."""
    if not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGINT, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit("the parent is gone already")


def main(parent: str, uid: str, gid: str, folder: str, *command: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    if int(uid) >= 0:
        _become(int(uid), int(gid))
    os.umask(0o077)
    os.chdir("/")
    alias = _alias(folder, descriptor)
    _end_with(int(parent))
    try:
        os.execv(command[0], [alias if each == folder else each for each in command])  # noqa: S606 no shell wanted
    except PermissionError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(NOT_EXECUTABLE)


if __name__ == "__main__":
    main(*sys.argv[1:])

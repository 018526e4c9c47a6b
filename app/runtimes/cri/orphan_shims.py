"""Ends shims that containerd has lost track of: it was killed while it made or removed their sandbox. The cri runtime asks.

A shim that is older than containerd itself has to be one of those that containerd found when it started. If none of its
sandboxes and containers is the shim's, it never will be again, and would stay for ever. When it is killed, containerd clears
away what it knows of it.
"""

import os
import signal
from collections.abc import Collection

from app.runtimes.engine.shims import is_older, shims
from app.runtimes.process import process_table

NAMESPACE = "k8s.io"


def end_lost(started: float, address: str, known: Collection[str]) -> int:
    """How many there were. `started`: when containerd was; `known`: ids of all its sandboxes and containers."""
    place = (os.path.realpath(address), NAMESPACE)
    ours = [each for each in shims() if (each.address, each.namespace) == place]
    lost = [each.pid for each in ours if each.id not in known and is_older(each.pid, started)]
    for pid in lost:
        process_table.kill(pid, signal.SIGKILL)
    return len(lost)

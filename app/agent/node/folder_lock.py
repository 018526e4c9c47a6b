"""Lock of the agent's folder: two agents on one would both be the node, and run its pods twice. Taken before anything else."""

import asyncio
import fcntl
import os
from pathlib import Path

PATIENCE, PAUSE = 2.0, 0.1  # seconds: the agent before may have been killed a moment ago


class ClaimedError(Exception):
    """Another agent has the folder."""


async def claim(folder: Path) -> None:
    """Keeps the folder to this process for as long as it lives."""
    lock = os.open(folder / "agent.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    for _ in range(int(PATIENCE / PAUSE)):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            await asyncio.sleep(PAUSE)
        else:
            return
    os.close(lock)
    raise ClaimedError(f"another agent runs on {folder}: a machine that is to be two nodes needs two --data-dir")

"""Where the Postgres of a test keeps its data: in memory if there is room, since files on a disk are half of what it costs.

Used by `conftest` and the tests of the embedded Postgres.
"""

import os
import shutil
from pathlib import Path

MEMORY = Path("/dev/shm")
ROOM = 2 << 30  # bytes; a container has 64 MiB unless it asks for more


def memory_folder() -> Path | None:
    """Return a folder for `tempfile`, or None for its usual one."""
    if not os.access(MEMORY, os.W_OK | os.X_OK) or shutil.disk_usage(MEMORY).free < ROOM:
        return None
    return MEMORY

"""Deletes folders that containers have written to: the process runtime's of pods, and the agent's volumes.

What a container writes it may also close: an agent that is not root opens folders of mode 0 before it can empty them.
"""

import subprocess
from collections.abc import Sequence
from pathlib import Path

from app.structured_logging import Logger

logger = Logger(__name__)


def remove(folders: Sequence[str | Path]) -> None:
    """Delete them, and nothing of other file systems. What cannot be deleted stays, with a warning. Takes a while: blocks."""
    try:
        if _run("rm", "-rf", "--one-file-system", "--", *folders).returncode:
            _run("chmod", "-R", "u+rwX", "--", *(each for each in folders if Path(each).is_dir()))
            _run("rm", "-rf", "--one-file-system", "--", *folders).check_returncode()
    except subprocess.CalledProcessError as error:
        logger.warning("cannot delete folders of pods", error=error.stderr.decode(errors="replace").strip()[:500])
    except OSError as error:
        logger.warning("cannot delete folders of pods", error=error)


def _run(*command: str | Path) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(command, check=False, capture_output=True, stdin=subprocess.DEVNULL)

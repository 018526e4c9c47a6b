"""Removal of folders that containers have written to: the process runtime's of pods, and the agent's volumes.

What a container writes it may also close: an agent that is not root opens folders of mode 0 before it can empty them.
"""

import asyncio
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from app.structured_logging import Logger

PAUSE = 0.2  # seconds between one `rm` and the next, in which folders gather: each `rm` costs as much as the files of some pods
MOST = 500  # folders of one
_PREFIX = ".gone-"  # no pod's folder is called like that

logger = Logger(__name__)


def remove(folders: Sequence[str | Path], inside: Sequence[str] = ()) -> None:
    """Delete them, and nothing of other file systems. What cannot be deleted stays, with a warning. Takes a while: blocks.

    inside: words before a command, such as those by which it is run in a user namespace.
    """
    try:
        if _run(*inside, "rm", "-rf", "--one-file-system", "--", *folders).returncode:
            _run(*inside, "chmod", "-R", "u+rwX", "--", *(each for each in folders if Path(each).is_dir()))
            _run(*inside, "rm", "-rf", "--one-file-system", "--", *folders).check_returncode()
    except subprocess.CalledProcessError as error:
        logger.warning("cannot delete folders of pods", error=error.stderr.decode(errors="replace").strip()[:500])
    except OSError as error:
        logger.warning("cannot delete folders of pods", error=error)


def _run(*command: str | Path) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(command, check=False, capture_output=True, stdin=subprocess.DEVNULL)


class FolderRemover:
    """Deletes folders of `root` in the background, all that wait by one `rm`. Begins with what an earlier agent left.

    Deleting is a dozen system calls a pod. In a thread of the agent each would take the interpreter from its loop, or wait for
    it. Made inside a running loop. `inside`: as of `remove`.
    """

    def __init__(self, root: Path, inside: Sequence[str] = ()) -> None:
        self._root, self._inside = root, inside
        self._waiting: dict[str, asyncio.Event] = {}
        self._task: asyncio.Task[None] | None = None
        for name in os.listdir(root):
            if name.startswith(_PREFIX):
                self._add(root / name)

    async def remove(self, folder: Path) -> None:
        """At once it is out of the way; at the end it has been deleted. Fine if there is none."""
        gone = self._root / (_PREFIX + "-".join(folder.relative_to(self._root).parts))
        try:
            os.rename(folder, gone)
        except FileNotFoundError:
            return
        await self._add(gone).wait()

    def close(self) -> None:
        """The next one on `root` deletes what still waits."""
        if self._task is not None:
            self._task.cancel()
        for deleted in self._waiting.values():
            deleted.set()

    def _add(self, folder: Path) -> asyncio.Event:
        deleted = self._waiting[str(folder)] = asyncio.Event()
        self._task = self._task or asyncio.get_running_loop().create_task(self._run())
        return deleted

    async def _run(self) -> None:
        while self._waiting:
            batch = list(self._waiting)[:MOST]
            await asyncio.to_thread(remove, batch, self._inside)
            for path in batch:
                self._waiting.pop(path).set()
            await asyncio.sleep(PAUSE)
        self._task = None

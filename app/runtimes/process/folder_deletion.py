"""Deletes the folders of the process runtime that nobody needs any more: all that wait by one `rm`.

Deleting is a dozen system calls a pod. In a thread of the agent each would take the interpreter from its loop, or wait
for it.
"""

import asyncio
import os
from pathlib import Path

from app.runtimes.linux.folder_removal import remove

PAUSE = 0.2  # seconds between one `rm` and the next, in which folders gather
MOST = 500  # folders of one
_PREFIX = ".gone-"  # no pod's folder is called like that


class Rubbish:
    """What is renamed in `root` to be deleted. Begins with what an earlier agent left. Made inside a running loop."""

    def __init__(self, root: Path) -> None:
        self._root = root
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
        """Whoever uses `root` next deletes what still waits."""
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
            await asyncio.to_thread(remove, batch)
            for path in batch:
                self._waiting.pop(path).set()
            await asyncio.sleep(PAUSE)
        self._task = None

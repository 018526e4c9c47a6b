"""Unpacked layers of the image store on disk, and the programs that unpack them. Called by the image store of the oci runtime.

A layer is a folder, named by the start of its digest: `fs` is what overlayfs stacks, `size` its bytes. It is made beside and
renamed into its place when it is whole and on disk. Layers that are pinned by a pull are not deleted.
"""

import asyncio
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path
from weakref import WeakValueDictionary

from app.runtimes.base import PullError
from app.runtimes.linux import folder_removal
from app.runtimes.oci.user_namespace import UserNamespace

UNPACK = Path(__file__).with_name("unpack.py")
SHORT = 24  # hexadecimal digits of a layer's name: overlayfs takes a page of names, which must hold 127
AT_ONCE = os.cpu_count() or 1  # layers that are unpacked
LOOK = 0.02  # seconds between looks for a layer that is being pulled
COMING = "oci-put-blob"  # how skopeo calls a blob before it is whole
WORTH_IT = 64 * 1024  # bytes of one that is not awaited
EMPTY = "empty"  # the layer of an image that has none


class Layers:
    """Made inside a running event loop."""

    def __init__(self, root: Path, namespace: UserNamespace) -> None:
        self.root, self._namespace = root, namespace
        self._unpacking = asyncio.Semaphore(AT_ONCE)
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._pinned: Counter[str] = Counter()

    def pin(self, names: Iterable[str]) -> None:
        self._pinned.update(names)

    def unpin(self, names: Iterable[str]) -> None:
        self._pinned.subtract(names)

    async def unpack(self, diff_id: str, blob: Path) -> int:
        """Once; its bytes. A blob that is not what it should be is deleted. Raises PullError."""
        async with self._lock(diff_id):
            with suppress(OSError, ValueError, IndexError):
                return int((self.root / short(diff_id) / "size").read_text(encoding="ascii").split()[0])
            async with self._unpacking:
                made = self._make_folder()
                try:
                    size, _ = await self._run(made, blob, diff_id)
                    self._keep(made, diff_id, size)
                    return size
                except PullError:
                    blob.unlink(missing_ok=True)  # the next pull fetches it again
                    raise
                finally:
                    await self._drop(made)

    async def unpack_what_comes(self, folder: Path, over: asyncio.Event, pinned: Counter[str]) -> None:
        """Unpack blobs while skopeo writes them to a folder, until that is over. `pinned`: names of the layers that were made.

        What goes wrong is told once all have come, and are unpacked as usual.
        """
        seen: set[str] = set()
        async with asyncio.TaskGroup() as group:
            while not over.is_set():
                for each in _coming(folder, seen):
                    seen.add(each.name)
                    group.create_task(self._unpack_coming(each, pinned))
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOOK):
                        await over.wait()

    async def _unpack_coming(self, blob: Path, pinned: Counter[str]) -> None:
        made = self._make_folder()
        try:
            with suppress(PullError):
                size, diff_id = await self._run(made, blob, "")
                async with self._lock(diff_id):
                    name = short(diff_id)
                    self.pin([name])
                    pinned[name] += 1
                    if not (self.root / name).exists():
                        self._keep(made, diff_id, size)
        finally:
            await self._drop(made)

    async def sweep(self, kept: Collection[str]) -> None:
        """Delete layers that neither an image has nor a pull is about to need."""
        kept = {*kept, *+self._pinned, EMPTY}
        gone = [each for each in self.root.iterdir() if each.name not in kept and not each.name.startswith(".")]
        for index, folder in enumerate(gone):  # out of the way at once: half of it must not be taken for the layer
            gone[index] = folder.rename(Path(tempfile.mkdtemp(dir=self.root, prefix=".gone-")) / "layer").parent
        if gone:
            await asyncio.to_thread(folder_removal.remove, gone, self._namespace.inside)

    def _lock(self, diff_id: str) -> asyncio.Lock:
        return self._locks.setdefault(diff_id, asyncio.Lock())

    def _make_folder(self) -> Path:
        made = Path(tempfile.mkdtemp(dir=self.root, prefix=".new-"))
        (made / "fs").mkdir()
        return made

    def _keep(self, made: Path, diff_id: str, size: int) -> None:
        (made / "size").write_text(str(size), encoding="ascii")
        made.chmod(0o755)
        made.rename(self.root / short(diff_id))

    async def _drop(self, made: Path) -> None:
        if made.exists():
            await asyncio.to_thread(folder_removal.remove, [made], self._namespace.inside)

    async def _run(self, made: Path, blob: Path, diff_id: str) -> tuple[int, str]:
        """Bytes and digest of what was unpacked. Raises PullError."""
        command = [*self._namespace.inside, sys.executable, "-IS", str(UNPACK), str(made / "fs"), str(blob), diff_id]
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            out, err = await process.communicate()
        except asyncio.CancelledError:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            raise
        if process.returncode:
            trouble = err.decode(errors="replace").strip()[-500:]
            raise PullError(f"failed to unpack layer {blob.parent.name}:{blob.name}: {trouble}")
        size, found = out.decode().split()
        return int(size), found


def short(diff_id: str) -> str:
    """The name of a layer. Raises PullError."""
    kind, _, digits = diff_id.partition(":")
    if kind != "sha256" or len(digits) != 64 or not digits.isalnum():
        raise PullError(f'the image names a layer "{diff_id}", which is no sha256 digest')
    return digits[:SHORT]


def _coming(folder: Path, seen: Collection[str]) -> list[Path]:
    found: list[Path] = []
    with suppress(OSError), os.scandir(folder) as entries:  # one is renamed when it is whole
        names = (each for each in entries if each.name.startswith(COMING) and each.name not in seen)
        found.extend(Path(each.path) for each in names if each.stat().st_size >= WORTH_IT)
    return found

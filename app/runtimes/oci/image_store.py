"""Store of images of the oci runtime: which there are, their layers on disk, pulls and removals.

    index.json       images by id, and the names that stand for them; replaced as a whole
    blobs/           parts of images by digest, as they were pulled
    layers/<name>/   an unpacked layer, named by the start of its digest: `fs` is what overlayfs stacks, `size` its bytes

A layer that several images share is pulled, unpacked and stored once. It is renamed into its place when it is whole and on disk,
and an image is in the index only when all its layers are: whatever is killed, what is in the index can be run.
"""

import asyncio
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from weakref import WeakValueDictionary

import msgspec

from app.plans.kubelet import image_pulls
from app.runtimes.base import Image, Login, PullError
from app.runtimes.linux import folder_removal
from app.runtimes.oci import skopeo
from app.runtimes.oci.skopeo import Manifest, Source
from app.runtimes.oci.user_namespace import UserNamespace
from app.runtimes.process import files

UNPACK = Path(__file__).with_name("unpack.py")
SHORT = 24  # hexadecimal digits of a layer's name: overlayfs takes a page of names, which must hold 127
AT_ONCE = os.cpu_count() or 1  # layers that are unpacked
NO_IMAGE = "none"  # of Jobs that were made by `jobplane run` without --image
_NO_IMAGE_ADVICE = (
    "the Job names no image, and this node runs images: pass --image, or use a node that runs programs of the machine "
    "(--runtime process)"
)
_UNREACHABLE = ("no such host", "i/o timeout", "dial tcp", "network is unreachable", "no route to host")
LOOK = 0.02  # seconds between looks for a layer that is being pulled
EMPTY = "empty"  # the layer of an image that has none


class ImageConfig(msgspec.Struct, frozen=True, rename="pascal", omit_defaults=True):
    """What an image says of its containers, as in its document."""

    user: str = ""
    entrypoint: tuple[str, ...] | None = None
    cmd: tuple[str, ...] | None = None
    env: tuple[str, ...] | None = None
    working_dir: str = ""


class StoredImage(msgspec.Struct, frozen=True):
    """`layers`: their names, lowest first; `blobs`: digests of what they were pulled as."""

    id: str
    size: int
    layers: tuple[str, ...]
    blobs: tuple[str, ...]
    config: ImageConfig


class _Index(msgspec.Struct):
    images: dict[str, StoredImage] = msgspec.field(default_factory=dict)
    names: dict[str, str] = msgspec.field(default_factory=dict)


class _Part(msgspec.Struct):
    digest: str


class _LayoutManifest(msgspec.Struct):
    config: _Part
    layers: list[_Part] = []


class _Layout(msgspec.Struct):
    manifests: list[_Part]


class _Rootfs(msgspec.Struct):
    diff_ids: list[str] = []


class _Document(msgspec.Struct):
    rootfs: _Rootfs
    config: ImageConfig | None = None


class ImageStore:
    """Made inside a running event loop. One agent at a time may use `root`: RuntimeError otherwise."""

    def __init__(self, root: Path, namespace: UserNamespace) -> None:
        self.root, self._namespace = root.resolve(), namespace
        self._lock = files.lock(self.root)
        self.layers, self._blobs = self.root / "layers", self.root / "blobs"
        for folder in (self.root, self.layers, self._blobs, self.layers / EMPTY, self.layers / EMPTY / "fs"):
            folder.mkdir(mode=0o755 if folder.is_relative_to(self.layers / EMPTY) else 0o700, exist_ok=True)
        self._index, self._writing = self._load(), asyncio.Lock()
        self._unpacking = asyncio.Semaphore(AT_ONCE)
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._pinned: Counter[str] = Counter()  # layers of pulls that go on
        leftovers = [*self.root.glob(".pull-*"), *self.layers.glob(".new-*"), *self.layers.glob(".gone-*")]
        if leftovers:  # of an agent that was killed
            asyncio.get_running_loop().run_in_executor(None, folder_removal.remove, leftovers, namespace.inside)

    def close(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def images(self) -> list[Image]:
        index = self._index
        names: dict[str, list[str]] = {}
        for name, id_ in index.names.items():
            names.setdefault(id_, []).append(name)
        return [Image(each.id, names.get(each.id, ()), each.size, each.config.user) for each in index.images.values()]

    def find(self, name: str) -> StoredImage | None:
        """By id or by any form of a name."""
        index = self._index
        with suppress(image_pulls.InvalidImageName):
            full = image_pulls.full_name(name)
            return index.images.get(index.names.get(full, full)) or index.images.get(f"sha256:{full}")
        return None

    async def pull(self, name: str, login: Login | None) -> str:
        """Its id. Raises PullError."""
        if name == NO_IMAGE:
            raise PullError(f'failed to pull image "{name}": {_NO_IMAGE_ADVICE}')
        try:
            full = image_pulls.full_name(name)
        except image_pulls.InvalidImageName as error:
            raise PullError(f'Failed to apply default image tag "{name}": {error}', "InvalidImageName") from error
        try:
            return await self.add(skopeo.at_registry(full), full, login)
        except PullError as error:
            raise PullError(f'failed to pull image "{name}": {error}{_advice(str(error))}', error.reason) from error

    async def add(self, source: Source, full_name: str, login: Login | None = None) -> str:
        """Take an image from wherever skopeo finds it. Raises PullError."""
        found = await skopeo.manifest(source, login)
        names = {full_name}
        if source.registry:
            names.add(f"{skopeo.without_tag(full_name)}@{found.digest}")
        if found.image_id not in self._index.images:
            await self._fetch(found, login)
        await self._change(lambda index: index.names.update(dict.fromkeys(names, found.image_id)))
        return found.image_id

    async def remove(self, image_id: str) -> None:
        """With all its names, and what no other image needs."""

        def forget(index: _Index) -> None:
            index.images.pop(image_id, None)
            index.names = {name: id_ for name, id_ in index.names.items() if id_ != image_id}

        await self._change(forget)
        await asyncio.to_thread(self._sweep)

    async def _fetch(self, found: Manifest, login: Login | None) -> None:
        early = asyncio.create_task(self._unpack_early(found, login))
        try:
            await self._copy_and_unpack(found, login)
        finally:
            early.cancel()
            await asyncio.gather(early, return_exceptions=True)

    async def _copy_and_unpack(self, found: Manifest, login: Login | None) -> None:
        with tempfile.TemporaryDirectory(dir=self.root, prefix=".pull-") as folder:
            layout = Path(folder)
            await skopeo.copy(found.source, login, self._blobs, layout)
            manifest, document = await asyncio.to_thread(self._read_layout, layout)
        pairs = [*zip(document.rootfs.diff_ids, (part.digest for part in manifest.layers), strict=False)]
        if len(pairs) != len(manifest.layers):
            raise PullError("the image's document names other layers than its manifest")
        names = tuple(_short(diff_id) for diff_id, _ in pairs)
        self._pinned.update(names)
        try:
            sizes = await asyncio.gather(*(self._unpack(diff_id, blob) for diff_id, blob in dict(pairs).items()))
            image = StoredImage(
                found.image_id,
                sum(sizes),
                names or (EMPTY,),
                tuple(blob for _, blob in pairs),
                document.config or ImageConfig(),
            )
            await self._change(lambda index: index.images.update({image.id: image}))
        finally:
            self._pinned.subtract(names)

    async def _unpack_early(self, found: Manifest, login: Login | None) -> None:
        """Unpack each layer as soon as it is there, while others come. What goes wrong is told once all have come."""
        if not found.source.registry or len(found.layers) < 2:
            return
        with suppress(PullError, ValueError):
            document = msgspec.json.decode(await skopeo.document(found, login), type=_Document)
            pairs = dict(zip(document.rootfs.diff_ids, found.layers, strict=True))
            names = [_short(diff_id) for diff_id in pairs]
            self._pinned.update(names)
            try:
                await asyncio.gather(*(self._unpack_when_there(*pair) for pair in pairs.items()))
            finally:
                self._pinned.subtract(names)

    async def _unpack_when_there(self, diff_id: str, blob: str) -> None:
        while not self._blob(blob).exists():  # noqa: ASYNC110 - skopeo renames it into its place, and tells nobody
            await asyncio.sleep(LOOK)
        await self._unpack(diff_id, blob)

    def _read_layout(self, folder: Path) -> tuple[_LayoutManifest, _Document]:
        try:
            layout = msgspec.json.decode((folder / "index.json").read_bytes(), type=_Layout)
            manifest = msgspec.json.decode(self._blob(layout.manifests[0].digest).read_bytes(), type=_LayoutManifest)
            document = msgspec.json.decode(self._blob(manifest.config.digest).read_bytes(), type=_Document)
        except (OSError, ValueError, IndexError) as error:
            raise PullError(f"the image cannot be read: {error}") from error
        for digest in (layout.manifests[0].digest, manifest.config.digest):
            self._blob(digest).unlink(missing_ok=True)
        return manifest, document

    async def _unpack(self, diff_id: str, blob: str) -> int:
        """Once; its bytes. Raises PullError."""
        lock = self._locks.setdefault(diff_id, asyncio.Lock())
        async with lock:
            place = self.layers / _short(diff_id)
            with suppress(OSError, ValueError):
                return int((place / "size").read_text(encoding="ascii"))
            async with self._unpacking:
                return await self._unpack_to(place, diff_id, blob)

    async def _unpack_to(self, place: Path, diff_id: str, blob: str) -> int:
        made = Path(tempfile.mkdtemp(dir=self.layers, prefix=".new-"))
        try:
            (made / "fs").mkdir()
            process = await asyncio.create_subprocess_exec(
                *self._namespace.inside,
                sys.executable,
                "-IS",
                str(UNPACK),
                str(made / "fs"),
                str(self._blob(blob)),
                diff_id,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            try:
                out, err = await process.communicate()
            except asyncio.CancelledError:
                process.kill()
                await process.wait()
                raise
            if process.returncode:
                self._blob(blob).unlink(missing_ok=True)  # the next pull fetches it again
                raise PullError(f"failed to unpack layer {blob}: {err.decode(errors='replace').strip()[-500:]}")
            (made / "size").write_bytes(out)
            made.chmod(0o755)
            made.rename(place)
            return int(out)
        finally:
            if made.exists():
                await asyncio.to_thread(folder_removal.remove, [made], self._namespace.inside)

    def _blob(self, digest: str) -> Path:
        return self._blobs.joinpath(*digest.split(":", 1))

    def _sweep(self) -> None:
        """Delete layers and blobs that no image has, and no pull is about to need."""
        images = self._index.images.values()
        layers = {layer for image in images for layer in image.layers} | {EMPTY} | {*+self._pinned}
        gone = [each for each in self.layers.iterdir() if each.name not in layers and not each.name.startswith(".")]
        for index, folder in enumerate(gone):  # out of the way at once: half of it must not be taken for the layer
            gone[index] = folder.rename(Path(tempfile.mkdtemp(dir=self.layers, prefix=".gone-")) / "layer").parent
        if gone:
            folder_removal.remove(gone, self._namespace.inside)
        if not +self._pinned:
            blobs = {blob.partition(":")[2] for image in images for blob in image.blobs}
            for file in self._blobs.glob("*/*"):
                if file.name not in blobs:
                    file.unlink(missing_ok=True)

    def _load(self) -> _Index:
        try:
            return msgspec.json.decode((self.root / "index.json").read_bytes(), type=_Index)
        except FileNotFoundError:
            return _Index()

    async def _change(self, change: Callable[[_Index], None]) -> None:
        """Change the index, on disk first."""
        async with self._writing:
            index = _Index({**self._index.images}, {**self._index.names})
            change(index)
            await asyncio.to_thread(self._write, msgspec.json.encode(index))
            self._index = index

    def _write(self, content: bytes) -> None:
        new = self.root / ".index.json"
        with new.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self.root / "index.json")


def _advice(trouble: str) -> str:
    """What to do if it is the network."""
    if any(each in trouble for each in _UNREACHABLE):
        return ". The registry cannot be reached: set a mirror in /etc/containers/registries.conf, or use --runtime process"
    return ""


def _short(diff_id: str) -> str:
    """Raises PullError."""
    kind, _, digits = diff_id.partition(":")
    if kind != "sha256" or len(digits) != 64 or not digits.isalnum():
        raise PullError(f'the image names a layer "{diff_id}", which is no sha256 digest')
    return digits[:SHORT]

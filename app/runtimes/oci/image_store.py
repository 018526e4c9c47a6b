"""Store of images of the oci runtime: which there are, their layers on disk, pulls and removals.

    index.json       images by id, and the names that stand for them; replaced as a whole
    blobs/           parts of images by digest, as they were pulled
    layers/          what was unpacked of them (`layers`)

A layer that several images share is pulled, unpacked and stored once, while it comes. It has its place when it is whole and on
disk, and an image is in the index only when all its layers are: whatever is killed, what is in the index can be run.
"""

import asyncio
import os
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from app.plans.kubelet import image_pulls
from app.runtimes.base import Image, Login, PullError
from app.runtimes.linux import folder_removal
from app.runtimes.oci import layers, skopeo
from app.runtimes.oci.layers import Layers
from app.runtimes.oci.skopeo import Manifest, Source
from app.runtimes.oci.user_namespace import UserNamespace
from app.runtimes.process import files

_NO_IMAGE_ADVICE = (
    "the Job names no image, and this node runs images: pass --image, or use a node that runs programs of the machine "
    "(--runtime process)"
)
_UNREACHABLE = ("no such host", "i/o timeout", "dial tcp", "network is unreachable", "no route to host")


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
        empty = self.layers / layers.EMPTY
        for folder in (self.root, self.layers, self._blobs, empty, empty / "fs"):
            folder.mkdir(mode=0o755 if folder.is_relative_to(empty) else 0o700, exist_ok=True)
        self._index, self._writing = self._load(), asyncio.Lock()
        self._unpacked = Layers(self.layers, namespace)
        self._pulls = 0  # that go on
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
        if name == image_pulls.NO_IMAGE:
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
        await self._sweep()

    async def _fetch(self, found: Manifest, login: Login | None) -> None:
        pinned: Counter[str] = Counter()
        self._pulls += 1
        try:
            with tempfile.TemporaryDirectory(dir=self.root, prefix=".pull-") as folder:
                await self._copy(found, login, Path(folder), pinned)
                manifest, document = await asyncio.to_thread(self._read_layout, Path(folder))
            await self._unpack(found, manifest, document, pinned)
        finally:
            self._pulls -= 1
            self._unpacked.unpin(pinned.elements())

    async def _copy(self, found: Manifest, login: Login | None, folder: Path, pinned: Counter[str]) -> None:
        """Layers are unpacked while they come."""
        over = asyncio.Event()
        early = asyncio.create_task(self._unpacked.unpack_what_comes(folder, over, pinned))
        try:
            await skopeo.copy(found.source, login, self._blobs, folder)
        except BaseException:
            early.cancel()
            raise
        finally:
            over.set()
            await asyncio.gather(early, return_exceptions=True)

    async def _unpack(
        self, found: Manifest, manifest: _LayoutManifest, document: _Document, pinned: Counter[str]
    ) -> None:
        """What was not unpacked already."""
        pairs = [*zip(document.rootfs.diff_ids, (part.digest for part in manifest.layers), strict=False)]
        if len(pairs) != len(manifest.layers):
            raise PullError("the image's document names other layers than its manifest")
        names = tuple(layers.short(diff_id) for diff_id, _ in pairs)
        self._unpacked.pin(names)
        pinned.update(names)
        unpack = self._unpacked.unpack
        sizes = await asyncio.gather(*(unpack(diff_id, self._blob(blob)) for diff_id, blob in dict(pairs).items()))
        image = StoredImage(
            found.image_id,
            sum(sizes),
            names or (layers.EMPTY,),
            tuple(blob for _, blob in pairs),
            document.config or ImageConfig(),
        )
        await self._change(lambda index: index.images.update({image.id: image}))

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

    def _blob(self, digest: str) -> Path:
        return self._blobs.joinpath(*digest.split(":", 1))

    async def _sweep(self) -> None:
        """Delete layers and blobs that no image has, and no pull is about to need."""
        images = [*self._index.images.values()]
        if not self._pulls:
            blobs = {blob.partition(":")[2] for image in images for blob in image.blobs}
            for file in self._blobs.glob("*/*"):
                if file.name not in blobs:
                    file.unlink(missing_ok=True)
        await self._unpacked.sweep({layer for image in images for layer in image.layers})

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

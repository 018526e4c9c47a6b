"""Pods of the oci runtime by itself, on the node's network and on their own, and its pulls beside skopeo's.

A pod: its sandbox; one container in it that ends at once; both removed. CPU is that of this process, which stands in for the
agent, and of all that it started. What the service adds is in the cases `node` and `engines`.
"""

import asyncio
import gzip
import hashlib
import io
import json
import os
import random
import resource
import tarfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from app.runtimes.base import ContainerKey, ContainerSpec, SandboxSpec
from app.runtimes.linux import cgroup_roots, folder_removal
from app.runtimes.oci import skopeo, user_namespace
from app.runtimes.oci.image_store import ImageStore
from app.runtimes.oci.runtime import OciRuntime
from benchmarks.bare_engines import COMMAND, rate
from benchmarks.case import Case
from benchmarks.cluster import Checkout
from benchmarks.figures import Figure
from benchmarks.load import scaled
from tests.runtimes import oci_images
from tests.runtimes.images import IMAGE
from tests.runtimes.registry import Registry, registry

COUNT, AT_ONCE = 200, 8
CIDR = "10.217.0.0/24"
MIB = 1 << 20
LAYERS, LAYER = 5, 30 * MIB  # of the large image, compressed
LINE = 25 * MIB  # bytes a second of a network of 200 Mbit/s
SHARING = 20  # images with one base


async def run(_: Checkout, scale: float) -> list[Figure]:
    figures, made = [], oci_images.folder()
    images = await asyncio.to_thread(next, made)  # it runs a loop of its own
    try:
        for name, cidr, target in (("node's", "", 60), ("own", CIDR if os.geteuid() == 0 else "", 30)):
            figures += await _pods(images, name, cidr, target, max(2 * AT_ONCE, scaled(COUNT, scale)))
    finally:
        await asyncio.to_thread(made.close)
    with registry() as server, TemporaryDirectory() as folder:
        return [*figures, *await _pulls(server, Path(folder), scaled(LAYER, scale))]


async def _pods(images: Path, name: str, cidr: str, target: float, count: int) -> list[Figure]:
    with _folder(cidr) as folder:
        runtime = OciRuntime(folder, images, cgroups=cgroup_roots.find(folder).cgroups)
        try:
            if cidr:
                await runtime.use_pod_cidr(cidr)
            before = _cpu()
            found = await rate(partial(_one_pod, runtime), count, AT_ONCE)
        finally:
            await runtime.close()  # what it has started has ended then, and counts
        ours, children = (1000 * (now - then) / (count + 1) for now, then in zip(_cpu(), before, strict=True))
    note = f"this process {ours:.1f}, what it started {children:.1f}"
    return [
        Figure(name=f"pods, {name} network", value=found, unit="pods/s", target=target, higher_is_better=True),
        Figure(name=f"CPU per pod, {name} network", value=ours + children, unit="ms", note=note),
    ]


@contextmanager
def _folder(cidr: str) -> Iterator[Path]:
    with TemporaryDirectory() as folder:
        try:
            yield Path(folder) / "oci"
        finally:
            if cidr:
                oci_images.remove_network(cidr)


async def _one_pod(runtime: OciRuntime, uid: str) -> None:
    key, events = ContainerKey(uid, "main", 0), runtime.events()
    await runtime.run_sandbox(SandboxSpec(pod_uid=uid, namespace="default", name=uid, hostname=uid))
    await runtime.start_container(ContainerSpec(key=key, image=IMAGE, command=COMMAND, env={}))
    while True:
        status = await runtime.status(key)
        if status is None or status.state == "exited":
            break
        await anext(events)
    if status is None or status.exit_code:
        raise RuntimeError(f"a container ended like this: {status}")
    await runtime.remove_sandbox(uid)


def _cpu() -> tuple[float, float]:
    """Seconds of this process, and of its children that have ended."""
    both = (resource.getrusage(each) for each in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    ours, children = (each.ru_utime + each.ru_stime for each in both)
    return ours, children


async def _pulls(server: Registry, folder: Path, size: int) -> list[Figure]:
    layers = [await asyncio.to_thread(_layer, number, size) for number in range(LAYERS)]
    large = server.add_layers("large", _document(layers), [gzip.compress(each, 1, mtime=0) for each in layers])
    figures = []
    for name, line, target in (("200 Mbit/s", LINE, 1.3), ("loopback", 0, None)):
        server.rate = line
        alone, whole = await _alone(large, folder / f"alone-{line}"), await _whole(large, folder / f"whole-{line}")
        note = f"{LAYERS * size // MIB} MiB: skopeo {alone:.1f} s, with unpacking {whole:.1f} s"
        figures.append(
            Figure(name=f"pull over skopeo's, {name}", value=whole / alone, unit="", target=target, note=note)
        )
    return [*figures, await _shared(server, folder / "shared", layers[0])]


async def _alone(image: str, folder: Path) -> float:
    """Seconds of skopeo by itself."""
    folder.mkdir()
    began = time.perf_counter()
    await skopeo.copy(skopeo.at_registry(image), None, folder / "blobs", folder / "layout")
    return time.perf_counter() - began


async def _whole(image: str, folder: Path) -> float:
    async with _store(folder) as store:
        began = time.perf_counter()
        await store.pull(image, None)
        return time.perf_counter() - began


async def _shared(server: Registry, folder: Path, base: bytes) -> Figure:
    """Several images of one base: what they take on disk, as a multiple of the base."""
    server.rate = 0
    async with _store(folder) as store:
        for number in range(SHARING):
            layers = [base, _layer(100 + number, 1 << 16)]
            packed = [gzip.compress(each, 1, mtime=0) for each in layers]
            await store.pull(server.add_layers(f"sharing-{number}", _document(layers), packed), None)
        sizes = [int((each / "size").read_text()) for each in store.layers.iterdir() if (each / "size").exists()]
    return Figure(name=f"disk of {SHARING} images of one base", value=sum(sizes) / len(base), unit="bases", target=1.2)


@asynccontextmanager
async def _store(folder: Path) -> AsyncIterator[ImageStore]:
    namespace = user_namespace.find()
    folder.mkdir()
    store = ImageStore(folder, namespace)
    try:
        yield store
    finally:
        store.close()
        await asyncio.to_thread(folder_removal.remove, [*folder.iterdir()], namespace.inside)


def _layer(number: int, size: int) -> bytes:
    """A tar archive of files, half of which can be compressed."""
    made, chance = io.BytesIO(), random.Random(number)
    with tarfile.open(fileobj=made, mode="w") as tar:
        for each in range(max(1, size // (64 * 1024))):
            entry = tarfile.TarInfo(f"layer-{number}/{each % 50}/{each}")
            entry.size = 96 * 1024
            tar.addfile(entry, io.BytesIO(chance.randbytes(64 * 1024) + bytes(32 * 1024)))
    return made.getvalue()


def _document(layers: list[bytes]) -> bytes:
    ids = [f"sha256:{hashlib.sha256(each).hexdigest()}" for each in layers]
    about = {"architecture": "amd64", "os": "linux", "config": {}, "rootfs": {"type": "layers", "diff_ids": ids}}
    return json.dumps(about).encode()


CASE = Case(
    name="oci",
    about=f"{COUNT} pods of the oci runtime by itself on each network, {AT_ONCE} at a time; pulls of {LAYERS * LAYER // MIB} MiB",
    run=run,
    missing=oci_images.missing,
)

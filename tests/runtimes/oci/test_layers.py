"""Layers that are unpacked while skopeo still writes them."""

import asyncio
import gzip
import os
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.runtimes.base import PullError
from app.runtimes.linux import folder_removal
from app.runtimes.oci import layers, user_namespace
from app.runtimes.oci.layers import Layers
from tests.needs import lacking
from tests.runtimes import oci_images
from tests.runtimes.images import digest
from tests.runtimes.oci.test_image_store import file, layer

PATIENCE = 60  # seconds


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Layers]:
    if found := oci_images.missing():
        lacking(f"needs {', '.join(found)}")
    namespace = user_namespace.find()
    (tmp_path / "layers").mkdir()
    yield Layers(tmp_path / "layers", namespace)
    folder_removal.remove([tmp_path / "layers"], namespace.inside)


async def until_one_is(folder: Path, pattern: str) -> None:
    async with asyncio.timeout(PATIENCE):
        while not [*folder.glob(pattern)]:  # noqa: ASYNC110 - nothing tells of files
            await asyncio.sleep(0.01)


async def until_none_is(folder: Path, pattern: str) -> None:
    async with asyncio.timeout(PATIENCE):
        while [*folder.glob(pattern)]:  # noqa: ASYNC110 - nothing tells of files
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("kind", ["gzip", "in two parts", "plain"])
async def test_a_layer_is_unpacked_while_it_comes(store: Layers, tmp_path: Path, kind: str) -> None:
    content = layer(file("first", os.urandom(1 << 20)), file("second", os.urandom(1 << 20)))
    parts = {"gzip": [content], "in two parts": [content[: 1 << 19], content[1 << 19 :]]}.get(kind, [])
    blob = b"".join(gzip.compress(each, 1) for each in parts) or content
    coming, over, pinned = tmp_path / f"{layers.COMING}123", asyncio.Event(), Counter[str]()
    coming.write_bytes(blob[: len(blob) * 3 // 4])
    task = asyncio.create_task(store.unpack_what_comes(tmp_path, over, pinned))
    await until_one_is(store.root, ".new-*/fs/first")
    with coming.open("ab") as rest:
        rest.write(blob[len(blob) * 3 // 4 :])
    coming.rename(tmp_path / digest(blob)[7:])
    over.set()
    await task

    name = layers.short(digest(content))
    assert [each.name for each in store.root.iterdir()] == [name]
    assert (store.root / name / "size").read_text() == str(2 << 20)
    assert pinned == {name: 1}


async def test_what_was_given_up_leaves_nothing(store: Layers, tmp_path: Path) -> None:
    blob = gzip.compress(layer(file("first", os.urandom(1 << 20)), file("second", os.urandom(1 << 20))), 1)
    coming, over = tmp_path / f"{layers.COMING}123", asyncio.Event()
    coming.write_bytes(blob[: len(blob) * 3 // 4])
    task = asyncio.create_task(store.unpack_what_comes(tmp_path, over, Counter()))
    await until_one_is(store.root, ".new-*/fs/first")
    coming.unlink()
    await until_none_is(store.root, ".new-*")
    over.set()
    await task

    assert [*store.root.iterdir()] == []


@pytest.mark.parametrize("kept", [0.5, 0.999])
async def test_a_layer_that_ends_too_early_is_refused(store: Layers, tmp_path: Path, kept: float) -> None:
    content = layer(file("first", os.urandom(1 << 16)))
    whole = gzip.compress(content, 1)
    blob = tmp_path / "blob"
    blob.write_bytes(whole[: int(len(whole) * kept)])

    with pytest.raises(PullError, match="failed to unpack layer"):
        await store.unpack(digest(content), blob)
    assert [*store.root.iterdir()] == []
    assert not blob.exists()  # the next pull fetches it again

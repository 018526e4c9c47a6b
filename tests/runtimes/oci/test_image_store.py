"""The store of images: layers as overlayfs stacks them, shared, checked, and confined to their folders."""

import asyncio
import gzip
import io
import json
import os
import stat
import subprocess
import tarfile
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import pytest

from app.runtimes.base import PullError
from app.runtimes.linux import folder_removal
from app.runtimes.oci import user_namespace
from app.runtimes.oci.image_store import ImageStore
from app.runtimes.oci.skopeo import Source
from tests.needs import lacking
from tests.runtimes import oci_images
from tests.runtimes.images import digest

Entry = tuple[tarfile.TarInfo, bytes]


def file(name: str, content: bytes = b"", **more: object) -> Entry:
    found = tarfile.TarInfo(name)
    found.size, found.mode = len(content), 0o644
    for key, value in more.items():
        setattr(found, key, value)
    return found, content


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> Entry:
    return file(name, type=kind, linkname=target)


def folder(name: str) -> Entry:
    return file(name, type=tarfile.DIRTYPE, mode=0o755)


def layer(*entries: Entry) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for member, content in entries:
            tar.addfile(member, io.BytesIO(content) if member.isreg() else None)
    return packed.getvalue()


def layout(place: Path, layers: Iterable[bytes], diff_ids: Iterable[str] = ()) -> Source:
    """An image as an OCI layout."""
    blobs = place / "blobs/sha256"
    blobs.mkdir(parents=True)

    def add(content: bytes, kind: str) -> dict[str, object]:
        (blobs / digest(content)[7:]).write_bytes(content)
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": digest(content), "size": len(content)}

    layers = [*layers]
    ids = [*diff_ids] or [digest(each) for each in layers]
    document = {"architecture": "amd64", "os": "linux", "config": {}, "rootfs": {"type": "layers", "diff_ids": ids}}
    config = add(json.dumps(document).encode(), "config.v1+json")
    parts = [add(gzip.compress(each, 1, mtime=0), "layer.v1.tar+gzip") for each in layers]
    manifest = add(json.dumps({"schemaVersion": 2, "config": config, "layers": parts}).encode(), "manifest.v1+json")
    (place / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [manifest]}))
    (place / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    return Source(f"oci:{place}")


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[ImageStore]:
    if found := oci_images.missing():
        lacking(f"needs {', '.join(found)}")
    namespace = user_namespace.find()
    (tmp_path / "store").mkdir()
    made = ImageStore(tmp_path / "store", namespace)
    yield made
    made.close()
    folder_removal.remove([tmp_path / "store"], namespace.inside)


def seen(store: ImageStore, name: str, script: str, work: Path) -> str:
    """What a script prints in the stacked layers of an image."""
    image = store.find(name)
    assert image
    lower = ":".join(str(store.layers / each / "fs") for each in reversed(image.layers))
    for each in ("up", "work", "root"):
        (work / each).mkdir(exist_ok=True)
    flags = user_namespace.find().unshare or ("--mount",)
    options = f"lowerdir={lower},upperdir={work}/up,workdir={work}/work" + (",userxattr" if os.geteuid() else "")
    text = f"mount -t overlay overlay -o {options} {work}/root && cd {work}/root && {script}"
    done = subprocess.run(["unshare", *flags, "sh", "-c", text], capture_output=True, text=True, check=True)
    return done.stdout


async def test_layers_are_stacked(store: ImageStore, tmp_path: Path) -> None:
    lower = layer(folder("kept"), file("kept/a", b"1"), file("gone", b"2"), folder("hidden"), file("hidden/b", b"3"))
    opaque = (folder("hidden"), file("hidden/.wh..wh..opq"), file("hidden/c", b"4"))
    upper = layer(
        file(".wh.gone"), *opaque, file("kept/d", b"5", mode=0o4755), link("kept/also", "kept/d", tarfile.LNKTYPE)
    )
    await store.add(layout(tmp_path / "image", [lower, upper]), "localhost/stacked:1")

    found = seen(store, "localhost/stacked:1", "find . -type f | sort; stat -c %a,%h kept/d", tmp_path)
    assert found.split() == ["./hidden/c", "./kept/a", "./kept/also", "./kept/d", "4755,2"]


async def test_no_layer_writes_outside_of_its_folder(store: ImageStore, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    climb = "../" * 20 + str(outside)[1:]
    entries = (
        file(f"{outside}/three", b"x"),
        link("to", str(outside)),
        file("to/one", b"x"),
        file(f"{climb}/two", b"x"),
    )
    await store.add(layout(tmp_path / "image", [layer(*entries)]), "localhost/climbing:1")
    assert [*outside.iterdir()] == []

    (outside / "secret").write_text("secret")
    away = layout(tmp_path / "other", [layer(link("mine", f"{outside}/secret", tarfile.LNKTYPE))])
    with pytest.raises(PullError, match="No such file"):
        await store.add(away, "localhost/stealing:1")


async def test_a_layer_that_is_not_what_the_image_says_is_refused(store: ImageStore, tmp_path: Path) -> None:
    source = layout(tmp_path / "image", [layer(file("a", b"1"))], [digest(b"another")])
    with pytest.raises(PullError, match="as the image says"):
        await store.add(source, "localhost/false:1")

    assert store.images() == []
    assert [each.name for each in store.layers.iterdir()] == ["empty"]


async def test_layers_are_shared_and_go_with_the_last_image(store: ImageStore, tmp_path: Path) -> None:
    base = layer(file("base", os.urandom(1 << 20)))
    sources = [layout(tmp_path / f"{n}", [base, layer(file("own", b"%d" % n))]) for n in range(8)]
    ids = await asyncio.gather(*(store.add(each, f"localhost/n{n}:1") for n, each in enumerate(sources)))

    blocks = sum(each.lstat().st_blocks for each in store.layers.rglob("*") if stat.S_ISREG(each.lstat().st_mode))
    assert len(set(ids)) == len(store.images()) == 8
    assert (1 << 20) <= blocks * 512 < 2 * (1 << 20)
    await store.remove(ids[0])
    assert seen(store, "localhost/n7:1", "cat own; wc -c <base", tmp_path).split() == ["7" + str(1 << 20)]
    for each in ids:
        await store.remove(each)
    assert [each.name for each in store.layers.iterdir()] == ["empty"]
    assert [*(store.root / "blobs").glob("*/*")] == []


async def test_what_a_killed_agent_left_of_a_pull_is_cleared_away(store: ImageStore, tmp_path: Path) -> None:
    await store.add(layout(tmp_path / "image", [layer(file("a", b"1"))]), "localhost/whole:1")
    store.close()
    half = store.layers / ".new-half"
    (half / "fs").mkdir(parents=True)
    again = ImageStore(store.root, user_namespace.find())
    try:
        async with asyncio.timeout(60):
            while half.exists():  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(0.01)
        assert again.find("localhost/whole:1")
    finally:
        again.close()


@pytest.mark.parametrize(
    ("name", "advice"),
    [("none", "pass --image"), ("127.0.0.1:9/absent:1", "The registry cannot be reached: .* --runtime process")],
)
async def test_who_cannot_have_an_image_is_told_what_to_do(store: ImageStore, name: str, advice: str) -> None:
    with pytest.raises(PullError, match=advice):
        await store.pull(name, None)

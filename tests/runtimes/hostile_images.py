"""Images whose layers try to write, read or delete outside of the container, or bring devices. For engines, from a registry."""

import io
import os
import tarfile
from collections.abc import Iterable
from pathlib import Path

from tests.runtimes.images import Built, built, with_layer

SECRET = "jobplane-outside-of-every-image"
Entry = tuple[tarfile.TarInfo, bytes]


def _entry(name: str, content: bytes = b"", **more: object) -> Entry:
    found = tarfile.TarInfo(name)
    found.size, found.mode = len(content), 0o644
    for key, value in more.items():
        setattr(found, key, value)
    return found, content


def _link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> Entry:
    return _entry(name, type=kind, linkname=target)


def _device(name: str, kind: bytes, number: int) -> Entry:
    return _entry(name, type=kind, mode=0o666, devmajor=os.major(number), devminor=os.minor(number))


def hostile_images(outside: Path) -> dict[str, Built]:
    """`outside`: a folder of the node, with a file `secret` that all of them are after."""
    climb = "../" * 24 + str(outside)[1:]
    disk = os.stat("/").st_dev
    made: dict[str, Iterable[Entry]] = {
        "a path that climbs": [_entry(f"{climb}/new", b"x")],
        "an absolute path": [_entry(f"{outside}/new", b"x")],
        "a path through a link": [_link("to", str(outside)), _entry("to/new", b"x")],
        "a path through links": [_link("up", ".."), _link("to", f"up/{climb}"), _entry("to/new", b"x")],
        "a hard link": [_link("mine", f"{outside}/secret", tarfile.LNKTYPE)],
        "a hard link that climbs": [_link("mine", f"{climb}/secret", tarfile.LNKTYPE)],
        "a hard link through a link": [_link("to", str(outside)), _link("mine", "to/secret", tarfile.LNKTYPE)],
        "a whiteout through a link": [_link("to", str(outside)), _entry("to/.wh.secret")],
        "a whiteout that climbs": [_entry(f"{climb}/.wh.secret")],
        "an opaque folder through a link": [_link("to", str(outside)), _entry("to/.wh..wh..opq")],
        "devices of the node": [
            _device("kmsg", tarfile.CHRTYPE, os.makedev(1, 11)),
            _device("disk", tarfile.BLKTYPE, disk),
        ],
    }
    return {name: with_layer(built(), _with(built().layer, entries)) for name, entries in made.items()}


def _with(layer: bytes, entries: Iterable[Entry]) -> bytes:
    packed = io.BytesIO(layer)
    with tarfile.open(fileobj=packed, mode="a") as tar:
        for member, content in entries:
            tar.addfile(member, io.BytesIO(content) if member.isreg() else None)
    return packed.getvalue()


NAMES = tuple(hostile_images(Path("/outside")))

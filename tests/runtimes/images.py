"""Images made here, of Debian's static busybox, for `docker load` and `ctr import`: no registry is needed."""

import hashlib
import io
import json
import platform
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

BUSYBOX = Path("/bin/busybox")
IMAGE = "localhost/jobplane/busybox:1"
PAUSE = "localhost/jobplane/pause:1"
FOLDERS = ("bin", "etc", "root", "home", "var", "proc", "sys", "dev", "mnt", "run", "usr", "usr/bin")
ACCOUNTS = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\nworker:x:1000:1000:worker:/home:/bin/sh\n",
    "etc/group": "root:x:0:\nworker:x:1000:\n",
}
_MADE = "2020-01-01T00:00:00Z"


class Built(NamedTuple):
    """An image: its document, which its id is the hash of, and its only layer."""

    document: bytes
    layer: bytes

    @property
    def id(self) -> str:
        return digest(self.document)


def digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def built(command: Sequence[str] = ("/bin/sh",), **config: object) -> Built:
    """`config`: more of what the image says of its containers, as Docker names it."""
    layer = _layer()
    about = {
        "architecture": {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine()),
        "os": "linux",
        "created": _MADE,
        "config": {"Env": ["PATH=/bin:/usr/bin"], "Cmd": list(command), "WorkingDir": "/", **config},
        "rootfs": {"type": "layers", "diff_ids": [digest(layer)]},
        "history": [{"created": _MADE}],
    }
    return Built(json.dumps(about, sort_keys=True).encode(), layer)


def with_layer(image: Built, layer: bytes) -> Built:
    """The same with another layer."""
    about = json.loads(image.document)
    about["rootfs"]["diff_ids"] = [digest(layer)]
    return Built(json.dumps(about, sort_keys=True).encode(), layer)


def write_image(path: Path, name: str, image: Built) -> None:
    """Its archive at `path`."""
    document, layer = image.id.removeprefix("sha256:") + ".json", digest(image.layer)[7:] + "/layer.tar"
    manifest = [{"Config": document, "RepoTags": [name], "Layers": [layer]}]
    _write(path, {document: image.document, layer: image.layer, "manifest.json": json.dumps(manifest).encode()})


def pause() -> Built:
    """What holds a pod's namespaces. It sleeps, and reaps nothing: enough for pods that live for seconds."""
    return built(("/bin/sleep", "1000000000"))


@cache
def _layer() -> bytes:
    applets = subprocess.run([BUSYBOX, "--list"], check=True, capture_output=True, text=True).stdout.split()
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name in FOLDERS:
            _add_folder(tar, name, 0o755)
        _add_folder(tar, "tmp", 0o1777)
        _add_file(tar, "bin/busybox", BUSYBOX.read_bytes(), 0o755)
        for applet in sorted({*applets} - {"busybox"}):
            link = tarfile.TarInfo(f"bin/{applet}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(link)
        for name, text in ACCOUNTS.items():
            _add_file(tar, name, text.encode(), 0o644)
    return packed.getvalue()


def _write(path: Path, files: Mapping[str, bytes]) -> None:
    with tarfile.open(path, "w") as tar:
        for name, content in files.items():
            _add_file(tar, name, content, 0o644)


def _add_folder(tar: tarfile.TarFile, name: str, mode: int) -> None:
    folder = tarfile.TarInfo(name)
    folder.type, folder.mode = tarfile.DIRTYPE, mode
    tar.addfile(folder)


def _add_file(tar: tarfile.TarFile, name: str, content: bytes, mode: int) -> None:
    file = tarfile.TarInfo(name)
    file.size, file.mode = len(content), mode
    tar.addfile(file, io.BytesIO(content))

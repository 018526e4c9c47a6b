"""Unpacks one layer of an image, for overlayfs. A program of its own: `python unpack.py FOLDER BLOB DIFF_ID`.

Without a DIFF_ID the blob is still being written by skopeo, and is unpacked as it comes: it is whole once it has another name.

The image store starts it, for an ordinary user in a user namespace. It changes its root to FOLDER first: whatever links a layer
has, nothing is written outside. What a layer deletes becomes overlayfs' whiteouts. The unpacked bytes must have the digest
DIFF_ID, or it fails. It prints how many bytes the files have, and the digest. Where only one user is mapped, all files are
that user's.
"""

import ctypes
import hashlib
import os
import shutil
import stat
import subprocess
import sys
import tarfile
import time
import zlib
from contextlib import suppress
from typing import Any, Protocol

GZIP, ZSTD, BZIP2 = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"BZh"
OPAQUE, WHITEOUT = ".wh..wh..opq", ".wh."
XATTR = "SCHILY.xattr."
KEPT_XATTRS = ("security.capability", "user.")
PIECE, COMPRESSED = 1 << 20, 1 << 15  # bytes; those of a piece become 32 MiB at most
PAUSE = 0.01  # seconds between looks for more of what comes
FOLDER = 0o755  # the mode of an image's root


class UnpackError(Exception):
    """A layer that is not what the image says, or cannot be read here."""


class Source(Protocol):
    """What a layer is read from. A piece may have another size than was asked for."""

    def read(self, size: int, /) -> bytes: ...


class Hashed:
    """A stream that is hashed as it is read."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.hash = hashlib.sha256()

    def read(self, size: int) -> bytes:
        data = self._source.read(size)
        self.hash.update(data)
        return data

    def read_rest(self) -> None:
        while self.read(PIECE):
            pass


class Layer:
    """The layer that is unpacked into the current folder. `marker`: the attribute of folders that hide what is below."""

    def __init__(self, marker: str) -> None:
        self._marker = marker
        self._folders: list[tarfile.TarInfo] = []
        self.size = 0

    def add(self, tar: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        path = os.path.normpath("/" + member.name).lstrip("/")
        folder, name = os.path.split(path)
        if folder:
            os.makedirs(folder, 0o755, exist_ok=True)
        if name == OPAQUE:
            os.setxattr(folder or ".", self._marker, b"y")
        elif name.startswith(WHITEOUT):
            self._clear(os.path.join(folder, name[len(WHITEOUT) :]))
            os.mknod(os.path.join(folder, name[len(WHITEOUT) :]), stat.S_IFCHR, os.makedev(0, 0))
        elif path:
            self._make(tar, member, path)

    def finish(self) -> None:
        """Modes and times of folders, which change while they are filled."""
        for member in reversed(self._folders):
            path = os.path.normpath("/" + member.name).lstrip("/") or "."
            os.chmod(path, member.mode & 0o7777)
            os.utime(path, (member.mtime, member.mtime))

    def _clear(self, path: str) -> None:
        """Of two entries of one name the last counts."""
        with suppress(FileNotFoundError):
            if stat.S_ISDIR(os.lstat(path).st_mode):
                shutil.rmtree(path)
            else:
                os.unlink(path)

    def _make(self, tar: tarfile.TarFile, member: tarfile.TarInfo, path: str) -> None:
        if member.isdir():
            if not os.path.isdir(path) or os.path.islink(path):
                self._clear(path)
                os.mkdir(path, 0o700)
            self._folders.append(member)
        else:
            self._clear(path)
            if member.islnk():
                os.link(os.path.normpath("/" + member.linkname), path, follow_symlinks=False)
                return
            if not self._make_file(tar, member, path):
                return
        with suppress(OSError):  # only one user is mapped, or not this one
            os.chown(path, member.uid, member.gid, follow_symlinks=False)
        self._set_attributes(member, path)
        if not member.issym():
            os.chmod(path, member.mode & 0o7777 | (0o700 if member.isdir() else 0))
        if not member.isdir():
            os.utime(path, (member.mtime, member.mtime), follow_symlinks=False)

    def _make_file(self, tar: tarfile.TarFile, member: tarfile.TarInfo, path: str) -> bool:
        """False if nothing was made: an ordinary user cannot make devices, and no container could use them."""
        if member.issym():
            os.symlink(member.linkname, path)
        elif member.isfifo():
            os.mkfifo(path)
        elif member.ischr() or member.isblk():
            kind = stat.S_IFCHR if member.ischr() else stat.S_IFBLK
            try:
                os.mknod(path, kind | 0o600, os.makedev(member.devmajor, member.devminor))
            except PermissionError:
                return False
        else:
            content = tar.extractfile(member)
            with open(path, "xb") as file:
                if content is not None:
                    shutil.copyfileobj(content, file, PIECE)
            self.size += member.size
        return True

    def _set_attributes(self, member: tarfile.TarInfo, path: str) -> None:
        for name, value in member.pax_headers.items():
            attribute = name.removeprefix(XATTR)
            if name.startswith(XATTR) and attribute.startswith(KEPT_XATTRS):
                with suppress(OSError):
                    os.setxattr(path, attribute, value.encode("utf-8", "surrogateescape"), follow_symlinks=False)


class Coming:
    """A file that grows, until it is renamed."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_RDONLY)
        self._names, self._name = os.open("/proc/self/fd", os.O_RDONLY | os.O_DIRECTORY), os.path.basename(path)
        self._parent = os.getppid()

    def read(self, size: int) -> bytes:
        """Nothing at the end. Raises UnpackError."""
        is_whole = False
        while not (data := os.read(self._file, size)) and not is_whole:
            is_whole = self._is_whole()
            if not is_whole:
                time.sleep(PAUSE)
        return data

    def _is_whole(self) -> bool:
        name = os.path.basename(os.readlink(str(self._file), dir_fd=self._names))
        if name.endswith(" (deleted)") or os.getppid() != self._parent:
            raise UnpackError("the pull of a layer was given up")
        return name != self._name


class Gunzip:
    """What is in a gzip file, in pieces of any size."""

    def __init__(self, source: Source) -> None:
        self._source, self._rest = source, b""
        self._inflate: Any = None

    def read(self, _: int) -> bytes:
        """Nothing at the end. Raises EOFError, zlib.error."""
        while data := self._rest or self._source.read(COMPRESSED):
            self._rest = b""
            if self._inflate is None:
                if not (data := data.lstrip(b"\0")):  # what may follow the last part
                    continue
                self._inflate = zlib.decompressobj(zlib.MAX_WBITS | 16)
            found: bytes = self._inflate.decompress(data)
            if self._inflate.eof:
                self._rest, self._inflate = self._inflate.unused_data, None
            if found:
                return found
        if self._inflate is not None:
            raise EOFError("a layer ends too early")
        return b""


class Prefixed:
    """A stream whose start was read already."""

    def __init__(self, start: bytes, source: Source) -> None:
        self._start, self._source = start, source

    def read(self, size: int) -> bytes:
        start, self._start = self._start, b""
        return start or self._source.read(size)


def open_layer(blob: str, *, comes: bool) -> Source:
    """Its bytes, decompressed. Raises UnpackError, OSError."""
    source: Source = Coming(blob) if comes else open(blob, "rb")  # noqa: SIM115 - until the end
    head = b""
    while len(head) < len(ZSTD) and (more := source.read(len(ZSTD) - len(head))):
        head += more
    if head.startswith(GZIP):
        return Gunzip(Prefixed(head, source))
    if head.startswith(BZIP2):
        raise UnpackError("a layer is compressed by bzip2, which OCI images do not use")
    if head.startswith(ZSTD):
        if comes:
            raise UnpackError("a layer is compressed by zstd, which takes all of it")
        program = shutil.which("zstd")
        if program is None:
            raise UnpackError("a layer is compressed by zstd: install the program zstd")
        return subprocess.Popen([program, "-dcq", blob], stdout=subprocess.PIPE).stdout  # type: ignore[return-value]
    return Prefixed(head, source)


def unpack(folder: str, blob: str, diff_id: str) -> tuple[int, str]:
    """Bytes of its files, and its digest. Raises UnpackError, OSError, tarfile.TarError, EOFError, zlib.error."""
    source = Hashed(open_layer(blob, comes=not diff_id))
    marker = "user.overlay.opaque" if _is_mapped() else "trusted.overlay.opaque"
    os.chmod(folder, FOLDER)
    os.chroot(folder)
    os.chdir("/")
    layer = Layer(marker)
    os.umask(0)
    with tarfile.open(fileobj=source, mode="r|", bufsize=PIECE) as tar:  # type: ignore[call-overload]
        for member in tar:
            layer.add(tar, member)
            tar.members = []  # else it remembers all
    source.read_rest()
    found = f"sha256:{source.hash.hexdigest()}"
    if diff_id not in ("", found):
        raise UnpackError(f"a layer's content is not {diff_id}, as the image says")
    layer.finish()
    _write_to_disk()
    return layer.size, found


def _is_mapped() -> bool:
    """Whether this is a user namespace of its own."""
    with open("/proc/self/uid_map", encoding="ascii") as file:
        return file.read().split() != ["0", "0", "4294967295"]


def _write_to_disk() -> None:
    """A layer that is there is whole, also after the machine has crashed."""
    fd = os.open("/", os.O_RDONLY | os.O_DIRECTORY)
    ctypes.CDLL(None).syncfs(fd)
    os.close(fd)


if __name__ == "__main__":
    try:
        sys.stdout.write("{} {}\n".format(*unpack(*sys.argv[1:])))
    except (UnpackError, OSError, tarfile.TarError, zlib.error, EOFError, ValueError) as error:
        sys.exit(f"{error}")

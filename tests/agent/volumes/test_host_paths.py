"""hostPath: what has to be there, what is made, and the kubelet's words for what is wrong."""

import os
import socket
from pathlib import Path

import pytest

from app.agent.pods.environment import ContainerConfigError
from app.agent.volumes.volumes import check_host_path
from app.kinds.pod.volume import HostPathVolumeSource

WHAT = {
    "Directory": "a directory",
    "DirectoryOrCreate": "a directory",
    "File": "a file",
    "FileOrCreate": "a file",
    "Socket": "a socket file",
    "CharDevice": "a character device",
    "BlockDevice": "a block device",
}


@pytest.fixture
def host(tmp_path: Path) -> Path:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("")
    with socket.socket(socket.AF_UNIX) as listener:
        here = os.getcwd()
        os.chdir(tmp_path)  # a socket's name has to be short
        listener.bind("socket")
        os.chdir(here)
    (tmp_path / "null").symlink_to("/dev/null")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("folder", {"", "Directory", "DirectoryOrCreate"}),
        ("file", {"", "File", "FileOrCreate"}),
        ("socket", {"", "Socket"}),
        ("null", {"", "CharDevice"}),
    ],
)
def test_what_is_there_has_to_be_what_is_asked_for(host: Path, name: str, kinds: set[str]) -> None:
    for kind in ("", *WHAT):
        source = HostPathVolumeSource(path=str(host / name), type=kind)
        if kind in kinds:
            assert check_host_path(source) == host / name
        else:
            with pytest.raises(
                ContainerConfigError, match=rf"^hostPath type check failed: {host / name} is not {WHAT[kind]}$"
            ):
                check_host_path(source)


@pytest.mark.parametrize(
    ("kind", "mode"),
    [
        pytest.param("", 0o40755, id="a folder, if nothing is said"),
        pytest.param("DirectoryOrCreate", 0o40755, id="a folder, if that is asked"),
        pytest.param("FileOrCreate", 0o100644, id="a file, if that is asked"),
        pytest.param("Directory", None, id="nothing, if a folder must be there"),
        pytest.param("Socket", None, id="nothing, if a socket must be there"),
    ],
)
def test_where_nothing_is_there_is_made(tmp_path: Path, kind: str, mode: int | None) -> None:
    source = HostPathVolumeSource(path=str(tmp_path / "new"), type=kind)
    if mode is None:
        with pytest.raises(ContainerConfigError, match="type check failed"):
            check_host_path(source)
        assert not (tmp_path / "new").exists()
    else:
        assert check_host_path(source).stat().st_mode == mode


@pytest.mark.parametrize("path", ["relative", "/tmp/../etc"])
def test_a_path_that_is_not_plain_is_refused(path: str) -> None:
    with pytest.raises(ContainerConfigError):
        check_host_path(HostPathVolumeSource(path=path))

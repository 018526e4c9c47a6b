"""Deleting what containers have written, also what they have closed."""

import asyncio
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.agent.volumes import volumes
from app.runtimes.linux.folder_removal import FolderRemover, remove
from tests.log_lines import lines

NOBODY = 65534


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder of an ordinary user, as whom the test runs."""
    folder = Path(tempfile.mkdtemp(prefix="jobplane-test-"))
    is_root = os.geteuid() == 0
    if is_root:
        os.chown(folder, NOBODY, NOBODY)
        os.seteuid(NOBODY)  # of children too: they hold no capabilities
    try:
        yield folder
    finally:
        if is_root:
            os.seteuid(0)
        subprocess.run(["chmod", "-R", "u+rwX", folder], check=True)
        shutil.rmtree(folder)


def closed(folder: Path) -> Path:
    """Holds a folder of mode 0 with a folder of mode 0 in it."""
    inner = folder / "outer" / "inner"
    inner.mkdir(parents=True)
    (inner / "file").write_text("x")
    for each in (inner, inner.parent):
        each.chmod(0)
    return folder


def test_an_ordinary_user_deletes_what_a_container_has_closed(place: Path) -> None:
    remove([closed(place / "one"), closed(place / "two")])
    assert list(place.iterdir()) == []


def test_an_ordinary_user_deletes_volumes_that_a_container_has_closed(place: Path) -> None:
    volumes._delete(closed(place / "volume"))
    assert list(place.iterdir()) == []


def test_what_links_lead_to_is_neither_opened_nor_deleted(place: Path) -> None:
    kept = place / "kept"
    kept.mkdir()
    (kept / "file").write_text("x")
    (kept / "file").chmod(0)
    folder = place / "pod"
    folder.mkdir()
    (folder / "link").symlink_to(kept)
    remove([closed(folder)])
    assert list(place.iterdir()) == [kept]
    assert (kept / "file").stat().st_mode & 0o777 == 0


def test_what_cannot_be_deleted_is_named(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = place / "held" / "pod"
    folder.mkdir(parents=True)
    folder.parent.chmod(0o500)
    remove([folder])
    (line,) = lines(caplog)
    assert line.startswith('WARNING: cannot delete folders of pods  error="rm: ')
    assert str(folder) in line


def filled(root: Path, *parts: str) -> Path:
    folder = root.joinpath(*parts)
    (folder / "inner").mkdir(parents=True)
    (folder / "inner" / "file").write_text("x")
    return folder


async def test_a_folder_is_out_of_the_way_at_once_and_deleted_in_the_end(tmp_path: Path) -> None:
    remover = FolderRemover(tmp_path)
    folder = filled(tmp_path, "pod", "main.0")
    removing = asyncio.create_task(remover.remove(folder))
    await asyncio.sleep(0)
    assert not folder.exists()
    await removing
    assert [each.name for each in tmp_path.iterdir()] == ["pod"]
    remover.close()


async def test_many_are_deleted_together(tmp_path: Path) -> None:
    remover = FolderRemover(tmp_path)
    await asyncio.gather(*(remover.remove(filled(tmp_path, f"pod-{number}")) for number in range(50)))
    assert list(tmp_path.iterdir()) == []
    remover.close()


async def test_a_folder_that_is_gone_is_no_trouble(tmp_path: Path) -> None:
    remover = FolderRemover(tmp_path)
    await remover.remove(tmp_path / "never")
    remover.close()


async def test_what_an_earlier_agent_left_is_deleted(tmp_path: Path) -> None:
    filled(tmp_path, ".gone-pod")
    kept = filled(tmp_path, "pod")
    remover = FolderRemover(tmp_path)
    await remover.remove(filled(tmp_path, "other"))  # waits in the same line
    assert list(tmp_path.iterdir()) == [kept]
    remover.close()


async def test_who_waits_as_it_closes_is_let_go(tmp_path: Path) -> None:
    remover = FolderRemover(tmp_path)
    removing = asyncio.create_task(remover.remove(filled(tmp_path, "pod")))
    await asyncio.sleep(0)
    remover.close()
    await removing

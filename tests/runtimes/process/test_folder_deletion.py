"""Deleting the folders of pods."""

import asyncio
from pathlib import Path

from app.runtimes.process.folder_deletion import Rubbish


def filled(root: Path, *parts: str) -> Path:
    folder = root.joinpath(*parts)
    (folder / "inner").mkdir(parents=True)
    (folder / "inner" / "file").write_text("x")
    return folder


async def test_a_folder_is_out_of_the_way_at_once_and_deleted_in_the_end(tmp_path: Path) -> None:
    rubbish = Rubbish(tmp_path)
    folder = filled(tmp_path, "pod", "main.0")
    removing = asyncio.create_task(rubbish.remove(folder))
    await asyncio.sleep(0)
    assert not folder.exists()
    await removing
    assert [each.name for each in tmp_path.iterdir()] == ["pod"]
    rubbish.close()


async def test_many_are_deleted_together(tmp_path: Path) -> None:
    rubbish = Rubbish(tmp_path)
    await asyncio.gather(*(rubbish.remove(filled(tmp_path, f"pod-{number}")) for number in range(50)))
    assert list(tmp_path.iterdir()) == []
    rubbish.close()


async def test_a_folder_that_is_gone_is_no_trouble(tmp_path: Path) -> None:
    rubbish = Rubbish(tmp_path)
    await rubbish.remove(tmp_path / "never")
    rubbish.close()


async def test_what_an_earlier_agent_left_is_deleted(tmp_path: Path) -> None:
    filled(tmp_path, ".gone-pod")
    kept = filled(tmp_path, "pod")
    rubbish = Rubbish(tmp_path)
    await rubbish.remove(filled(tmp_path, "other"))  # waits in the same line
    assert list(tmp_path.iterdir()) == [kept]
    rubbish.close()


async def test_who_waits_as_it_closes_is_let_go(tmp_path: Path) -> None:
    rubbish = Rubbish(tmp_path)
    removing = asyncio.create_task(rubbish.remove(filled(tmp_path, "pod")))
    await asyncio.sleep(0)
    rubbish.close()
    await removing

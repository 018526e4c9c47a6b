"""Following the output of a container that does not wait until it is followed."""

import asyncio
from pathlib import Path

from app.runtimes.process_files import Folder
from app.runtimes.process_logs import Follower, Log
from tests.runtimes.conftest import PATIENCE, a_key


async def test_what_was_written_before_it_was_followed_is_noticed(tmp_path: Path) -> None:
    key = a_key()
    (tmp_path / key.pod_uid).mkdir()
    folder = Folder(tmp_path, key)
    assert folder.create()
    for name, text in (("out", b"one\n"), ("err", b"")):
        folder.write(name, text)
    grown = asyncio.Event()
    follower = Follower(lambda _: grown.set())
    log = Log(folder)
    follower.follow(folder, log)
    async with asyncio.timeout(PATIENCE):
        await grown.wait()
    assert log.read(0, 1000).endswith(b"stdout F one\n")
    follower.close()

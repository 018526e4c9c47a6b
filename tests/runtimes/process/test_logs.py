"""Following the output of a container that does not wait until it is followed."""

import asyncio
from pathlib import Path

import pytest

from app.runtimes.process import logs as process_logs
from app.runtimes.process.files import Folder
from app.runtimes.process.logs import Follower, Log
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


async def test_raw_output_that_is_in_the_log_takes_no_room(tmp_path: Path) -> None:
    folder = Folder(tmp_path, a_key())
    folder.path.mkdir(parents=True)
    raw = folder.path / "out"
    line = b"x" * 1023 + b"\n"
    raw.write_bytes(line * 8 * 1024)
    log = Log(folder)
    while log.drain(256 * 1024, last=False):
        pass

    assert raw.stat().st_size == 8 * 1024 * 1024
    assert raw.stat().st_blocks * 512 <= 2 * process_logs.KEPT
    again = Log(folder)
    with raw.open("ab") as file:
        file.write(b"the last\n")
    assert again.drain(256 * 1024, last=True) == len(b"the last\n")
    size = (folder.path / "log").stat().st_size
    assert again.read(size - 18, 18) == b"stdout F the last\n"


async def test_whoever_writes_too_fast_loses_what_came_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_logs, "BACKLOG", 64 * 1024)
    folder = Folder(tmp_path, a_key())
    folder.path.mkdir(parents=True)
    (folder.path / "out").write_bytes(b"".join(b"line %d\n" % number for number in range(20_000)))
    log = Log(folder)
    while log.drain(16 * 1024, last=False):
        pass
    lines = [line.split(b" ", 3)[3] for line in log.read(0, 1 << 20).splitlines()]

    assert lines[-1] == b"line 19999"
    assert len(lines) < 4000
    assert lines == [b"line %d" % number for number in range(20_000 - len(lines), 20_000)]
    assert Log(folder).read(0, 1 << 20) == log.read(0, 1 << 20)
    assert Log(folder).drain(1 << 20, last=True) == 0


async def test_log_that_was_taken_takes_no_room_and_offsets_stay(tmp_path: Path) -> None:
    folder = Folder(tmp_path, a_key())
    folder.path.mkdir(parents=True)
    (folder.path / "out").write_bytes((b"x" * 1023 + b"\n") * 8 * 1024)
    log = Log(folder)
    while log.drain(256 * 1024, last=False):
        pass
    size = (folder.path / "log").stat().st_size
    end = log.read(size - 5000, 5000)
    log.release(size)

    assert (folder.path / "log").stat().st_blocks * 512 <= 3 * process_logs.KEPT
    assert log.read(size - 5000, 5000) == end
    assert Log(folder).read(size - 5000, 5000) == end


async def test_a_log_that_nobody_takes_does_not_fill_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The API is away: once enough waits, the newest of the raw output is kept, also by an agent that is started again."""
    monkeypatch.setattr(process_logs, "UNTAKEN", 1 << 20)
    monkeypatch.setattr(process_logs, "BACKLOG", 4 << 20)
    folder = Folder(tmp_path, a_key())
    folder.path.mkdir(parents=True)
    log, lines = Log(folder), 0
    for _ in range(20):
        with (folder.path / "out").open("ab") as raw:
            raw.write(b"".join(b"%07d %s\n" % (number, b"x" * 1015) for number in range(lines, lines + 1000)))
        lines += 1000
        while log.drain(256 * 1024, last=False):
            pass
        used = sum(each.stat().st_blocks * 512 for each in folder.path.iterdir())
        assert used < (1 << 20) + 2 * (4 << 20)
    again = Log(folder)
    taken, numbers = 0, []
    while data := again.read(taken, 1 << 20) or (again.drain(256 * 1024, last=True) and again.read(taken, 1 << 20)):
        numbers += [int(line.split(b" ", 4)[3]) for line in data.split(b"\n") if len(line) > 1000]
        taken += len(data)
    assert again.complete
    assert numbers[0] == 0
    assert numbers[-1] == lines - 1
    assert numbers[-2000:] == list(range(lines - 2000, lines))

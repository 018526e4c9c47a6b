"""Start times of processes: the kernel tells in which hundredth of a second one began, and no more. Peers of sockets."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from app.runtimes.linux import process_table
from app.runtimes.linux.process_table import started_at

TIMES = 20  # each would fail nine times in ten if the moment were taken for the beginning of that hundredth
LOOKS = 100  # whoever is interrupted as he looks at the clocks finds too early a moment


@contextmanager
def sleeping() -> Iterator[int]:
    """The pid of a process that does nothing."""
    with subprocess.Popen(["sleep", "1000"]) as process:
        try:
            yield process.pid
        finally:
            process.kill()


def test_what_was_there_just_before_a_process_is_older(tmp_path: Path) -> None:
    for each in (tmp_path / str(number) for number in range(TIMES)):
        each.touch()
        with sleeping() as engine:
            assert any(each.stat().st_ctime < (started_at(engine) or 0) for _ in range(LOOKS))


def test_what_does_not_live_has_no_start() -> None:
    with sleeping() as pid:
        pass
    assert started_at(pid) is None


LISTENS = """
import socket, sys, time
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
print(flush=True)
time.sleep(60)
"""


async def test_it_is_when_the_process_that_listens_began(tmp_path: Path) -> None:
    path = str(tmp_path / "socket")
    before = datetime.now(UTC)
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", LISTENS, path, stdout=asyncio.subprocess.PIPE)
    started = datetime.now(UTC)
    assert process.stdout
    await process.stdout.readline()
    found = process_table.listener_started_at(path)
    process.kill()
    await process.wait()

    tick = timedelta(seconds=0.05)
    assert found
    assert before - tick <= found <= started + tick
    assert process_table.listener_started_at(path) is None
    assert process_table.listener_started_at(str(tmp_path / "nobody")) is None

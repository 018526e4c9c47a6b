"""Since when somebody has been at the other end of a Unix socket."""

import asyncio
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from app.runtimes.linux import peer_credentials

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
    found = peer_credentials.began_at(path)
    process.kill()
    await process.wait()

    tick = timedelta(seconds=0.05)
    assert found
    assert before - tick <= found <= started + tick
    assert peer_credentials.began_at(path) is None
    assert peer_credentials.began_at(str(tmp_path / "nobody")) is None

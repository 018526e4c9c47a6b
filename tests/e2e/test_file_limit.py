"""How many files the API may have: as many as the hard limit allows; when it has no more it logs that, and goes on."""

import asyncio
import resource
import ssl
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from tests.e2e.cluster import environment, free_port

SECONDS = 120
HARD = 160
FULL, AGAIN = b"file descriptors run out", b"file descriptors are free again"
VERSION = b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n"


def limited(soft: int, hard: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@asynccontextmanager
async def api(dsn: str, folder: Path, port: int, soft: int, hard: int) -> AsyncIterator[Process]:
    env = environment(JOBPLANE_DATABASE_URL=dsn, JOBPLANE_DATA_DIR=str(folder), JOBPLANE_PORT=str(port))
    command = ("-m", "app.main.cli", "api", "--no-tls")
    part = await asyncio.create_subprocess_exec(
        sys.executable, *command, env=env, stderr=PIPE, preexec_fn=limited(soft, hard)
    )
    try:
        yield part
    finally:
        part.terminate()
        await part.communicate()


async def said(part: Process, words: bytes) -> bytes:
    """What it logs up to and with the line that has these words."""
    assert part.stderr
    lines = b""
    while words not in lines:
        line = await part.stderr.readline()
        assert line, lines.decode()
        lines += line
    return lines


async def answered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    """Whether the API answers on this connection; False if it has hung up."""
    try:
        writer.write(VERSION)
        await writer.drain()
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(int(each.split(b":")[1]) for each in head.splitlines() if each.startswith(b"content-length"))
        await reader.readexactly(length)
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()
        return False
    return True


async def test_the_api_without_files_says_so_once_serves_those_it_has_and_recovers(dsn: str, tmp_path: Path) -> None:
    port = free_port()
    async with asyncio.timeout(SECONDS), api(dsn, tmp_path, port, HARD, HARD) as part:
        await said(part, b"API is serving")
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2 * HARD)]
        log = await said(part, FULL)
        assert await answered(*held[0])
        assert not await answered(*held[-1])
        assert not await answered(*await asyncio.open_connection("127.0.0.1", port))

        for _, writer in held[1:]:
            writer.close()
        log += await said(part, AGAIN)
        fresh = await asyncio.open_connection("127.0.0.1", port)
        assert await answered(*fresh)
        assert await answered(*held[0])
        for _, writer in (held[0], fresh):
            writer.close()
        for _, writer in held[1:]:
            with suppress(ConnectionError, ssl.SSLError):
                await writer.wait_closed()

    assert log.count(FULL) == 1
    assert b"LimitNOFILE=" in log
    assert f"limit={HARD}\n".encode() in log


async def test_the_api_takes_as_many_files_as_it_is_allowed_to(dsn: str, tmp_path: Path) -> None:
    async with asyncio.timeout(SECONDS), api(dsn, tmp_path, free_port(), 128, 2048) as part:
        await said(part, b"API is serving")
        assert resource.prlimit(part.pid, resource.RLIMIT_NOFILE) == (2048, 2048)

"""Parts that begin while the database goes away, over and over: they wait for it, and nobody has to start them again."""

import asyncio
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from tests.e2e.cluster import UNEXPECTED, environment, free_port
from tests.store.proxy import Proxy

SECONDS = 120


@pytest.mark.parametrize(
    ("command", "begun"),
    [
        pytest.param(("api", "--no-tls"), b"API is serving", id="api"),
        pytest.param(("controllers",), b"elected leader", id="controllers"),
    ],
)
async def test_a_part_begins_while_the_database_goes_away(
    dsn: str, tmp_path: Path, command: tuple[str, ...], begun: bytes
) -> None:
    said = b""
    async with Proxy(dsn) as proxy, asyncio.timeout(SECONDS):
        proxy.break_ever_later(6)
        variables = {"JOBPLANE_DATABASE_URL": proxy.dsn, "JOBPLANE_DATA_DIR": str(tmp_path)}
        env = environment(JOBPLANE_PORT=str(free_port()), **variables)
        part = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "app.main.cli", *command, env=env, stderr=PIPE
        )
        assert part.stderr
        try:
            while begun not in said:
                line = await part.stderr.readline()
                assert line, said.decode()
                said += line
        finally:
            if part.returncode is None:
                part.terminate()
            said += await part.stderr.read()
            await part.wait()

    assert proxy.broken > 1
    assert UNEXPECTED.search(said.decode()) is None, said.decode()
    assert part.returncode == 0

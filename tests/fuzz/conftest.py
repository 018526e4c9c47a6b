"""One API for all the fuzzers of a test process, on a database of its own."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from secrets import token_hex

import pytest

from tests.conftest import database, execute
from tests.fuzz.target import Target


@pytest.fixture(scope="session")
def fuzzed(server: str, template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    name = f"fuzzed_{token_hex(4)}"
    folder: Path = tmp_path_factory.mktemp("fuzzed")
    asyncio.run(execute(server, f"create database {name} template {template}"))
    try:
        with Target(folder, database(server, name)) as target:
            yield target
    finally:
        asyncio.run(execute(server, f"drop database {name} with (force)"))

"""Nobody connects to an embedded Postgres without its password: in a new folder, or in one of an earlier version."""

import asyncio
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from app.postgres.embedded_postgres import Postgres
from app.postgres.postgres_binaries import SetupError, find

TRUSTING = "local all all trust\nlocal replication all trust\n"


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Of a cluster that the tests of this module share; each leaves it fit for the next."""

    async def make(folder: Path) -> None:
        postgres = Postgres(folder)
        await postgres.start()
        await postgres.stop()

    with tempfile.TemporaryDirectory(prefix="jobplane-test-") as path:
        Path(path).chmod(0o711)
        asyncio.run(make(Path(path) / "pg"))
        yield Path(path) / "pg"


@pytest.fixture(autouse=True)
def no_password_of_ones_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PGPASSFILE", str(tmp_path / "none"))


def without_password(dsn: str) -> str:
    return dsn.partition("&passfile=")[0]


async def ask(dsn: str) -> object:
    connection = await asyncpg.connect(dsn)
    try:
        return await connection.fetchval("select 42")
    finally:
        await connection.close()


async def assert_only_with_password(dsn: str) -> None:
    assert await ask(dsn) == 42
    with pytest.raises(asyncpg.InvalidPasswordError):
        await ask(without_password(dsn))
    with pytest.raises(asyncpg.InvalidPasswordError):
        await ask(without_password(dsn) + "&password=postgres")


async def test_a_new_cluster_lets_nobody_in_without_its_password(folder: Path) -> None:
    postgres = Postgres(folder)
    try:
        await assert_only_with_password(await postgres.start())
    finally:
        await postgres.stop()

    assert (folder / "pgpass").stat().st_mode & 0o777 == 0o600
    assert "trust" not in (folder / "cluster" / "pg_hba.conf").read_text()


async def test_the_data_folder_of_an_earlier_version_gets_a_password(folder: Path) -> None:
    (folder / "cluster" / "pg_hba.conf").write_text(TRUSTING)
    (folder / "pgpass").unlink()

    postgres = Postgres(folder)
    try:
        await assert_only_with_password(await postgres.start())
    finally:
        await postgres.stop()


async def test_a_start_that_was_killed_before_the_password_was_demanded_is_repeated(folder: Path) -> None:
    kept = (folder / "pgpass").read_text()
    (folder / "cluster" / "pg_hba.conf").write_text(TRUSTING)
    (folder / ".pgpass.new").write_text("torn")

    postgres = Postgres(folder)
    try:
        await assert_only_with_password(await postgres.start())
    finally:
        await postgres.stop()
    assert (folder / "pgpass").read_text() == kept


async def test_a_password_whose_file_is_deleted_is_replaced(folder: Path) -> None:
    old = (folder / "pgpass").rename(folder.parent / "old")

    postgres = Postgres(folder)
    try:
        dsn = await postgres.start()
        await assert_only_with_password(dsn)
        with pytest.raises(asyncpg.InvalidPasswordError):
            await ask(f"{without_password(dsn)}&passfile={old}")
    finally:
        await postgres.stop()


async def test_neither_log_nor_command_line_has_the_password(folder: Path) -> None:
    password = (folder / "pgpass").read_text().strip().rpartition(":")[2]
    postgres = Postgres(folder)
    try:
        dsn = await postgres.start()
        shown = await asyncio.to_thread(subprocess.check_output, ["ps", "axww", "-o", "args="], text=True)
    finally:
        await postgres.stop()
    assert len(password) > 40
    for text in (dsn, shown, (folder / "postgres.log").read_text()):
        assert password not in text


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
async def test_another_user_does_not_even_reach_the_socket(folder: Path) -> None:
    postgres = Postgres(folder)
    try:
        await postgres.start()
        program = (await find()).folder / "psql"
        command = [program, "-h", folder / "cluster", "-U", "postgres", "-w", "-c", "select 1"]
        stranger = {"user": 12345, "group": 12345, "extra_groups": [], "cwd": "/"}
        tried = await asyncio.to_thread(
            subprocess.run, command, capture_output=True, text=True, check=False, **stranger
        )
    finally:
        await postgres.stop()
    assert tried.returncode == 2
    assert "Permission denied" in tried.stderr


async def test_a_standby_without_its_primarys_password_says_what_to_copy(folder: Path) -> None:
    signal = folder / "cluster" / "standby.signal"
    kept = (folder / "pgpass").rename(folder.parent / "kept")
    signal.touch()
    try:
        with pytest.raises(SetupError, match="copy the primary's pgpass"):
            await Postgres(folder).start()
    finally:
        signal.unlink()
        kept.replace(folder / "pgpass")

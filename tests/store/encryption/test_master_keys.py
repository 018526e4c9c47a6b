"""Master keys: what a file may hold, what a command is given, and what an operator is told."""

import base64
import os
import stat
import sys
from pathlib import Path

import pytest

from app.store.encryption.master_keys import KeyCommand, KeyFile, MasterKeyError, Wrapped, master_keys, new_data_key
from app.store.errors import Unavailable

# Knows two of its own keys, and names in what it prints which one it took, as key services do.
SERVICE = """
import base64, sys
verb, given = sys.argv[-1], sys.stdin.buffer.read()
mask = lambda data, key: bytes(each ^ key for each in data)
if verb == "wrap":
    print("v1:" + base64.b64encode(mask(given, 42)).decode())
else:
    version, _, text = given.decode().partition(":")
    assert version == "v1", version
    sys.stdout.buffer.write(mask(base64.b64decode(text), 42))
"""


def new_line() -> str:
    return base64.b64encode(os.urandom(32)).decode()


def key_file(path: Path, *lines: str, mode: int = 0o600) -> Path:
    path.write_text("\n".join(lines) + "\n")
    path.chmod(mode)
    return path


@pytest.fixture
def service(tmp_path: Path) -> KeyCommand:
    program = tmp_path / "key-service.py"
    program.write_text(SERVICE)
    return KeyCommand(f"{sys.executable} {program}")


async def test_the_first_line_wraps_and_all_lines_unwrap(tmp_path: Path) -> None:
    old, new, key = new_line(), new_line(), new_data_key()
    keys = KeyFile(key_file(tmp_path / "keys", old))
    before = await keys.wrap(key)

    key_file(tmp_path / "keys", new, "", old)
    after = await keys.wrap(key)

    assert before.name != after.name
    assert key not in before.data
    assert [await keys.unwrap(each) for each in (before, after)] == [key, key]


async def test_a_line_that_is_gone_is_named(tmp_path: Path) -> None:
    keys = KeyFile(key_file(tmp_path / "keys", new_line()))
    wrapped = await keys.wrap(new_data_key())
    key_file(tmp_path / "keys", new_line())

    with pytest.raises(MasterKeyError, match=f"lacks the key {wrapped.name}"):
        await keys.unwrap(wrapped)


@pytest.mark.parametrize(
    ("lines", "mode", "message"),
    [
        pytest.param([], 0o600, "holds no key; make one: umask 077; head -c 32 /dev/urandom", id="empty"),
        pytest.param(["c2hvcnQ="], 0o600, ":1 is not the base64 of 32 bytes", id="too short"),
        pytest.param([new_line(), "?"], 0o600, ":2 is not the base64 of 32 bytes", id="no base64"),
        pytest.param([new_line()], 0o640, "other users can reach .*: chmod 600", id="readable by the group"),
    ],
)
async def test_a_bad_file_is_told_with_what_to_do(tmp_path: Path, lines: list[str], mode: int, message: str) -> None:
    keys = KeyFile(key_file(tmp_path / "keys", *lines, mode=mode))

    with pytest.raises(MasterKeyError, match=message) as error:
        await keys.wrap(new_data_key())
    assert not any(line and line in str(error.value) for line in lines if len(line) > 10)


async def test_an_absent_file_is_told_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(
        MasterKeyError, match=r"is not there; make a key: umask 077; head -c 32 /dev/urandom \| base64 > "
    ):
        await KeyFile(tmp_path / "none").wrap(new_data_key())


async def test_a_damaged_data_key_is_not_taken(tmp_path: Path) -> None:
    keys = KeyFile(key_file(tmp_path / "keys", new_line()))
    wrapped = await keys.wrap(new_data_key())

    with pytest.raises(MasterKeyError, match="is damaged"):
        await keys.unwrap(Wrapped(wrapped.name, bytes(reversed(wrapped.data))))


async def test_a_command_wraps_and_unwraps(service: KeyCommand) -> None:
    key = new_data_key()
    wrapped = await service.wrap(key)

    assert wrapped.data.startswith(b"v1:")
    assert base64.b64encode(key) not in wrapped.data
    assert await service.unwrap(wrapped) == key


async def test_a_command_that_fails_is_like_a_database_that_is_away(service: KeyCommand) -> None:
    with pytest.raises(Unavailable, match="unwrap` ended with 1"):
        await service.unwrap(Wrapped("command", b"v2:"))


async def test_a_command_that_is_not_there_is_told() -> None:
    with pytest.raises(MasterKeyError, match=r"cannot run `/no/such/program wrap`: .*No such file"):
        await KeyCommand("/no/such/program").wrap(new_data_key())


async def test_who_moves_from_a_file_to_a_command_gives_both(tmp_path: Path, service: KeyCommand) -> None:
    file, key = key_file(tmp_path / "keys", new_line()), new_data_key()
    wrapped = await KeyFile(file).wrap(key)
    both = master_keys(file, service._command)
    assert both is not None

    assert await both.unwrap(wrapped) == key
    assert (await both.wrap(key)).name == "command"
    with pytest.raises(MasterKeyError, match="set JOBPLANE_SECRETS_KEY_FILE, too"):
        await service.unwrap(wrapped)


def test_without_settings_nothing_is_encrypted() -> None:
    assert master_keys(None, "") is None


def test_the_way_to_make_a_key_that_is_told_works(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    assert os.system(f"umask 077; head -c 32 /dev/urandom | base64 > {path}") == 0

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(KeyFile(path)._read()) == 1

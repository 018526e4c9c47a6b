"""The end of a program: its exit code and its line."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from app.client.api import Api
from app.machinery.errors import ApiError
from app.main.cli_errors import CommandError, ConfigError, ended, ending, keep_tracebacks_in, text_of
from app.main.cli_options import call_api
from app.settings import Settings


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        pytest.param(ConfigError("pass another --port"), 78, "pass another --port", id="a setting"),
        pytest.param(CommandError("no such pod"), 1, "no such pod", id="a failure"),
        pytest.param(ApiError(404, "NotFound", 'jobs "x" not found'), 1, 'jobs "x" not found', id="a refusal"),
        pytest.param(
            PermissionError(errno.EACCES, "Permission denied", "/etc/x"),
            78,
            f"user {os.geteuid()} cannot use /etc/x: Permission denied: pass another path",
            id="no permission",
        ),
        pytest.param(
            FileNotFoundError(errno.ENOENT, "No such file", "pi.yaml"),
            1,
            "pi.yaml does not exist: pass another path",
            id="no file",
        ),
        pytest.param(OSError(errno.ENOSPC, "No space left on device"), 1, "No space left on device", id="may pass"),
        pytest.param(KeyboardInterrupt(), 130, "", id="Ctrl-C"),
        pytest.param(BrokenPipeError(errno.EPIPE, "Broken pipe"), 1, "", id="nobody reads"),
        pytest.param(BaseExceptionGroup("", [ConfigError("in a task")]), 78, "in a task", id="of a task group"),
        pytest.param(KeyError("x"), 1, "unexpected error: KeyError: 'x'", id="unforeseen"),
    ],
)
def test_an_error_becomes_a_code_and_a_line(error: BaseException, code: int, line: str) -> None:
    assert ending(error)[:2] == (code, line)


def test_the_traceback_of_an_unforeseen_error_goes_to_a_private_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def program() -> None:
        raise KeyError("x")

    keep_tracebacks_in(tmp_path)
    for _ in range(2):  # the file holds the last one
        assert ended(program) == 1

    file = tmp_path / "traceback.txt"
    said = capsys.readouterr().err.splitlines()
    assert said == [f"unexpected error: KeyError: 'x' (its traceback is in {file})"] * 2
    assert file.read_text().count("Traceback") == 1
    assert oct(file.stat().st_mode & 0o777) == "0o600"


def test_where_it_was_raised_is_said_if_no_file_can_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def program() -> None:
        raise KeyError("x")

    keep_tracebacks_in(tmp_path / "missing")
    assert ended(program) == 1
    assert f"it was raised at {__file__}:" in capsys.readouterr().err


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "token").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="token is not a text file"):
        text_of(tmp_path / "token")
    with pytest.raises(ConfigError, match="nothing does not exist"):
        text_of(tmp_path / "nothing")


def test_an_agent_loads_little_to_end_in_good_order() -> None:
    heavy = "{'typer', 'pydantic', 'asyncpg', 'sqlalchemy', 'httpx'}"
    code = f"import app.main.cli_errors, sys; print(sorted({heavy} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_a_reader_that_has_hung_up_is_not_taken_for_an_api_that_does_not_answer() -> None:
    async def work(api: Api) -> None:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    with pytest.raises(BrokenPipeError):
        call_api(Settings(server="http://127.0.0.1:9"), work)

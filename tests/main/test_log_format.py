"""`--log-format` and JOBPLANE_LOG_FORMAT, of processes as their operators start them."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

NOWHERE = "postgresql://ada:secret@127.0.0.1:9/x"


def stderr_of(arguments: Sequence[str], **variables: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-m", "app.main.cli", *arguments],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 78
    return done.stderr.splitlines()


def an_agent(folder: Path) -> list[str]:
    """One that logs a line, and then ends by an error."""
    where = ["--server", "http://192.0.2.7:8080", "--data-dir", str(folder)]
    return ["agent", "--runtime", "simulated", *where, "--eviction-hard", "nonsense"]


def parsed(lines: Sequence[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize("by_variable", [False, True], ids=["flag", "variable"])
def test_every_line_of_an_agent_is_json(tmp_path: Path, by_variable: bool) -> None:
    arguments, variables = an_agent(tmp_path), {}
    if by_variable:
        variables = {"JOBPLANE_LOG_FORMAT": "json"}
    else:
        arguments += ["--log-format", "json"]
    warning, last = parsed(stderr_of(arguments, **variables))

    assert (warning["level"], warning["component"], warning["address"]) == (
        "warning",
        "agent",
        "http://192.0.2.7:8080",
    )
    assert last["level"] == "critical"
    assert last["msg"].startswith("--eviction-hard: ")


def test_tracebacks_of_level_debug_are_json_too(tmp_path: Path) -> None:
    lines = parsed(stderr_of([*an_agent(tmp_path), "--log-format", "json"], JOBPLANE_LOG_LEVEL="debug"))
    assert any("Traceback" in line["msg"] for line in lines)


def test_errors_of_threads_and_of_finalizers_are_json_too() -> None:
    program = """if True:
        import threading
        from app.main import log_output
        log_output.start("info", "json", "test")
        thread = threading.Thread(target=lambda: 1 / 0)
        thread.start()
        thread.join()
        class Broken:
            def __del__(self):
                raise ValueError("broken")
        Broken()
        """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    thread, finalizer = parsed(done.stderr.splitlines())
    assert "ZeroDivisionError" in thread["exception"]
    assert "ValueError: broken" in finalizer["exception"]


def test_text_is_the_default(tmp_path: Path) -> None:
    warning, last = stderr_of(an_agent(tmp_path))
    assert " WARNING agent: --server is plain HTTP" in warning
    assert last.startswith("--eviction-hard: ")


def test_an_api_that_cannot_listen_says_so_in_json(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        arguments = ["api", "--log-format", "json", "--port", port, "--database-url", NOWHERE]
        *_, waiting, last = parsed(stderr_of(arguments, JOBPLANE_DATA_DIR=str(tmp_path)))

    assert (waiting["msg"], waiting["address"]) == ("port is in use; trying again for a while", f"127.0.0.1:{port}")
    assert "pass another --port" in last["msg"]


@pytest.mark.parametrize("command", ["up", "api", "controllers", "agent", "migrate"])
def test_every_command_that_runs_a_process_has_the_flag(command: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "app.main.cli", command, "--log-format", "xml"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "'text', 'json'" in done.stderr

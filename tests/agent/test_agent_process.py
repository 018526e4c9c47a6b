"""What `jobplane agent` becomes."""

import subprocess
import sys
from pathlib import Path

import pytest


def said(*command: str) -> tuple[int, str]:
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout + done.stderr


def test_an_agent_loads_nothing_of_the_command_line() -> None:
    heavy = "{'typer', 'pydantic', 'pydantic_settings', 'rich', 'click', 'sqlalchemy', 'yaml', 'grpc'}"
    code, text = said("-c", f"import app.agent_process, sys; print(sorted({heavy} & sys.modules.keys()))")
    assert (code, text) == (0, "[]\n")


def test_an_agent_loads_only_the_kinds_that_it_needs() -> None:
    heavy = "{'typer', 'pydantic', 'yaml', 'grpc', 'app.kinds.job', 'app.kinds.cronjob', 'app.kinds.role'}"
    loaded = "import app.agent_process, app.agent.agent, app.agent.shutdown, app.runtimes.process, sys"
    code, text = said("-c", f"{loaded}; print(sorted({heavy} & sys.modules.keys()))")
    assert (code, text) == (0, "[]\n")


@pytest.mark.parametrize(
    ("runtime", "endpoint", "expected"),
    [
        pytest.param("cri", "tcp://1.2.3.4:5", "only unix:// is spoken here, with a whole path", id="cri"),
        pytest.param("docker", "ssh://1.2.3.4", "only unix:// and plain tcp:// are spoken here", id="docker"),
    ],
)
def test_an_endpoint_that_it_cannot_speak_to_is_refused(
    tmp_path: Path, runtime: str, endpoint: str, expected: str
) -> None:
    (tmp_path / "token").touch()
    command = ("-m", "app.cli", "agent", "--runtime", runtime, "--data-dir", str(tmp_path), "--server", "https://x")
    code, text = said(*command, "--runtime-endpoint", endpoint, "--token-file", str(tmp_path / "token"))

    assert code == 1
    assert text.endswith(f"--runtime-endpoint: {endpoint}: {expected}\n")


def test_its_orders_reach_it(tmp_path: Path) -> None:
    command = ("-m", "app.cli", "agent", "--runtime", "simulated", "--data-dir", str(tmp_path), "--server", "https://x")
    code, text = said(*command, "--eviction-hard", "nonsense")
    assert code == 1
    assert text.startswith("--eviction-hard: ")

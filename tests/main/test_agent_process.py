"""What `jobplane agent` becomes."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from app.main.agent_process import node_names
from app.runtimes import RuntimeName


def said(*command: str) -> tuple[int, str]:
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout + done.stderr


def test_an_agent_loads_nothing_of_the_command_line() -> None:
    heavy = "{'typer', 'pydantic', 'pydantic_settings', 'rich', 'click', 'sqlalchemy', 'yaml', 'grpc'}"
    code, text = said("-c", f"import app.main.agent_process, sys; print(sorted({heavy} & sys.modules.keys()))")
    assert (code, text) == (0, "[]\n")


def test_an_agent_loads_only_the_kinds_that_it_needs() -> None:
    heavy = (
        "{'typer', 'pydantic', 'yaml', 'grpc', 'app.kinds.batch.job', 'app.kinds.batch.cronjob', 'app.kinds.auth.role'}"
    )
    loaded = (
        "import app.main.agent_process, app.agent.agent, app.agent.node.shutdown, app.runtimes.process.runtime, sys"
    )
    code, text = said("-c", f"{loaded}; print(sorted({heavy} & sys.modules.keys()))")
    assert (code, text) == (0, "[]\n")


@pytest.mark.parametrize(
    ("runtime", "endpoint", "expected"),
    [
        pytest.param("cri", "tcp://1.2.3.4:5", "only unix:// with an absolute path is supported", id="cri"),
        pytest.param("docker", "ssh://1.2.3.4", "only unix:// and plain tcp:// are supported", id="docker"),
    ],
)
def test_an_endpoint_that_it_cannot_speak_to_is_refused(
    tmp_path: Path, runtime: str, endpoint: str, expected: str
) -> None:
    (tmp_path / "token").touch()
    command = (
        "-m",
        "app.main.cli",
        "agent",
        "--runtime",
        runtime,
        "--data-dir",
        str(tmp_path),
        "--server",
        "https://x",
    )
    code, text = said(*command, "--runtime-endpoint", endpoint, "--token-file", str(tmp_path / "token"))

    assert code == 78
    assert text.endswith(f"--runtime-endpoint: {endpoint}: {expected}\n")


def test_its_orders_reach_it(tmp_path: Path) -> None:
    command = (
        "-m",
        "app.main.cli",
        "agent",
        "--runtime",
        "simulated",
        "--data-dir",
        str(tmp_path),
        "--server",
        "https://x",
    )
    code, text = said(*command, "--eviction-hard", "nonsense")
    assert code == 78
    assert text.startswith("--eviction-hard: ")


@pytest.mark.parametrize(
    ("server", "warned"),
    [
        pytest.param("http://192.0.2.7:8080", True, id="plain HTTP"),
        pytest.param("https://192.0.2.7:6443", False, id="HTTPS"),
        pytest.param("http://127.0.0.1:8080", False, id="plain HTTP within the machine"),
    ],
)
def test_an_agent_warns_of_a_server_without_tls(tmp_path: Path, server: str, warned: bool) -> None:
    command = ("-m", "app.main.cli", "agent", "--runtime", "simulated", "--data-dir", str(tmp_path), "--server", server)
    code, text = said(*command, "--eviction-hard", "nonsense")

    assert code == 78
    assert ("WARNING agent: --server is plain HTTP" in text and f"address={server}" in text) == warned


@pytest.mark.parametrize(
    ("runtime", "name", "expected"),
    [
        pytest.param("simulated", "", ("simulated-0", "simulated-1"), id="simulated"),
        pytest.param("simulated", "rack-7", ("rack-7-0", "rack-7-1"), id="simulated and named"),
        pytest.param("process", "rack-7", ("rack-7",), id="named"),
    ],
)
def test_a_simulated_fleet_s_nodes_are_numbered_behind_the_node_name(
    runtime: RuntimeName, name: str, expected: tuple[str, ...]
) -> None:
    assert node_names(runtime, name, 2) == expected


def test_containers_do_not_inherit_the_descriptor_of_last_words() -> None:
    """They could write what `up` prints in the end."""
    listing = "os.waitpid(os.posix_spawn('/bin/ls', ['ls', '-l', '/proc/self/fd'], os.environ), 0)"
    keep = "from app.main.cli_errors import keep_last_words; keep_last_words()"
    program = f"import os; {listing}; print('=====', flush=True); {keep}; {listing}"
    with tempfile.NamedTemporaryFile() as words:
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "JOBPLANE_LAST_WORDS": str(words.fileno())},
            pass_fds=(words.fileno(),),
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
    before, after = done.stdout.split("=====")

    assert words.name in before
    assert words.name not in after


def test_a_fleet_whose_names_fill_more_than_a_pipe_starts(tmp_path: Path) -> None:
    """5,000 names are 80 KiB; a pipe takes 64."""
    (tmp_path / "token").write_text("token")
    command = ("agent", "--runtime", "simulated", "--nodes", "5000", "--data-dir", str(tmp_path))
    server = ("--server", "http://127.0.0.1:1", "--token-file", str(tmp_path / "token"))
    with subprocess.Popen(
        [sys.executable, "-m", "app.main.cli", *command, *server], stderr=subprocess.PIPE, text=True
    ) as agent:
        try:
            assert agent.stderr is not None
            assert next(line for line in agent.stderr if "node=simulated-" in line)
        finally:
            agent.kill()

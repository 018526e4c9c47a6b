"""What `jobplane agent` becomes."""

import subprocess
import sys
from pathlib import Path


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


def test_its_orders_reach_it(tmp_path: Path) -> None:
    command = ("-m", "app.cli", "agent", "--runtime", "simulated", "--data-dir", str(tmp_path), "--server", "https://x")
    code, text = said(*command, "--eviction-hard", "nonsense")
    assert code == 1
    assert text.startswith("--eviction-hard: ")

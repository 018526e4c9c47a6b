"""What `jobplane up` loads, and what it tells its agent."""

import subprocess
import sys
from pathlib import Path

import pytest

from app.main.cli_agent import agent_config_of_up
from app.main.supervisor import next_pause
from app.settings import Settings


def test_the_agent_of_up_calls_the_api_on_its_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its other settings are those of any agent; what an agent of another cluster would be told counts for nothing."""
    for name, value in {
        "SERVER": "https://elsewhere",
        "TLS_NAME": "elsewhere",
        "EVICTION_HARD": "pid.available<5%",
    }.items():
        monkeypatch.setenv(f"JOBPLANE_{name}", value)
    told = agent_config_of_up(Settings(data_dir=tmp_path, port=7443, metrics_address="127.0.0.1:9100"))
    assert (told.server, told.tls_name) == ("https://127.0.0.1:7443", "")
    assert (told.token_file, told.ca_file) == (tmp_path / "agent.token", tmp_path / "tls" / "ca.crt")
    assert (told.state_dir, told.metrics_address) == (tmp_path / "agent", "127.0.0.1:9101")
    assert told.eviction_hard == "pid.available<5%"


def test_a_process_that_was_killed_starts_again_at_once_and_one_that_keeps_ending_ever_later() -> None:
    assert next_pause(0.0, lived=3600.0) == next_pause(5.0, lived=5.1) == 0.0
    pauses = [0.0]
    for _ in range(7):
        pauses.append(next_pause(pauses[-1], lived=0.1))
    assert pauses[1:] == [0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]


def test_up_loads_nothing_that_only_its_children_need() -> None:
    heavy = "{'app.store', 'app.kinds', 'app.api', 'asyncpg', 'fastapi', 'cryptography', 'httpx', 'yaml'}"
    look = f"import app.main.cli, app.main.supervisor, sys; print(sorted({heavy} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "[]\n", done.stderr


def test_controllers_load_nothing_for_what_few_clusters_have() -> None:
    """Certificates to sign, webhooks to deliver, and traces to send take six megabytes."""
    heavy = "{'cryptography', 'httpx', 'fastapi', 'sqlalchemy', 'yaml', 'grpc'}"
    modules = (
        "app.controllers.manager, app.controllers.auth.certificate_signing, app.controllers.webhooks.webhook_client"
    )
    look = f"import {modules}, sys; print(sorted({heavy} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "[]\n", done.stderr

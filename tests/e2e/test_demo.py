"""`jobplane demo`, as it comes in a wheel: without a checkout, and without any program that only some machines have."""

import subprocess
import sys
from pathlib import Path

from app.main.demo import PI
from tests.conformance.documents import pi
from tests.e2e.cluster import environment
from tests.e2e.secret_values import SecretValues, find_leaks

EXAMPLE = Path(__file__).parents[2] / "examples" / "pi.yaml"


def run_command(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "jobplane", *arguments]
    return subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, check=False)


def demo(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run_command(folder, "demo", *arguments)


def test_the_demo_prints_pi_from_an_empty_folder(tmp_path: Path) -> None:
    shown = demo(tmp_path)
    assert (shown.returncode, shown.stdout.strip()) == (0, pi(2100)[:2002]), shown.stderr
    data, values = tmp_path / "build" / "demo", SecretValues()
    values.note_folder(data)
    assert len(values.credentials) >= 3
    (tmp_path / "printed").write_text(shown.stdout + shown.stderr)
    assert find_leaks(data, [tmp_path / "printed"], values=values) == []


def test_the_demo_names_a_manifest_that_is_not_there(tmp_path: Path) -> None:
    shown = demo(tmp_path, "absent.yaml")
    assert shown.returncode == 78
    assert "absent.yaml" in shown.stderr
    assert "Traceback" not in shown.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_demo_runs_the_example_of_the_readme() -> None:
    assert PI.read_bytes() == EXAMPLE.read_bytes()

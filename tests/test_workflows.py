"""The workflows of GitHub, as far as they can be judged elsewhere: they are well formed, safe, and call what exists."""

import re
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / ".github" / "workflows"
TEXTS = {path.stem: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.yml")}
# `on` is a boolean to YAML 1.1.
WORKFLOWS: dict[str, dict[Any, Any]] = {name: yaml.safe_load(text) for name, text in TEXTS.items()}
RELEASE: dict[str, dict[str, Any]] = WORKFLOWS["release"]["jobs"]
PINNED = re.compile(r"uses: [\w.-]+/[\w.-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$")


def commands(workflow: str) -> list[str]:
    """The lines of shell that a workflow runs."""
    steps = [step for job in WORKFLOWS[workflow]["jobs"].values() for step in job.get("steps", [])]
    return [line.strip() for step in steps for line in step.get("run", "").splitlines()]


def test_the_auditor_finds_no_fault() -> None:
    program = Path(sysconfig.get_path("scripts")) / "zizmor"
    done = subprocess.run(
        [program, "--offline", "--no-progress", ROOT / ".github"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_linter_finds_no_fault() -> None:
    if not shutil.which("actionlint"):
        pytest.skip("no actionlint: go install github.com/rhysd/actionlint/cmd/actionlint@latest")
    done = subprocess.run(["actionlint"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", TEXTS)
def test_an_action_is_pinned_to_a_commit_and_its_version_named(name: str) -> None:
    uses = [line.strip().removeprefix("- ") for line in TEXTS[name].splitlines() if "uses: " in line]
    assert uses
    assert [line for line in uses if not PINNED.fullmatch(line) and "uses: ./" not in line] == []


@pytest.mark.parametrize("name", TEXTS)
def test_a_workflow_has_no_right_but_those_that_a_job_names(name: str) -> None:
    assert WORKFLOWS[name]["permissions"] == {}
    assert all(
        ("permissions" in job and "timeout-minutes" in job) or "uses" in job for job in WORKFLOWS[name]["jobs"].values()
    )


@pytest.mark.parametrize("name", TEXTS)
def test_a_workflow_makes_what_can_be_made(name: str) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    made = [word for line in commands(name) if line.startswith("make ") for word in line.split()[1:]]
    assert set(made) <= targets


def test_every_change_goes_through_the_gate() -> None:
    assert {"push", "pull_request", "workflow_call"} <= WORKFLOWS["ci"][True].keys()
    (line,) = commands("ci")
    assert line.endswith('bash .ci/run "$PART"')
    (job,) = WORKFLOWS["ci"]["jobs"].values()
    refused = subprocess.run([ROOT / ".ci" / "run", "none"], capture_output=True, text=True, check=False)
    assert (refused.returncode, refused.stdout) == (2, "")
    parts = " ".join(job["strategy"]["matrix"]["part"])
    assert refused.stderr == f"no part 'none': name some of {parts}, or none for all but slow\n"
    assert RELEASE["test"]["uses"] == "./.github/workflows/ci.yml"


def test_a_release_is_started_by_a_person_and_publishes_nothing_unless_told() -> None:
    (trigger,) = WORKFLOWS["release"][True].items()
    assert (trigger[0], trigger[1]["inputs"]["publish"]["default"]) == ("workflow_dispatch", False)


@pytest.mark.parametrize("name", ["publish-package", "publish-image"])
def test_what_is_published_was_tested_and_has_provenance(name: str) -> None:
    job = RELEASE[name]
    assert {*job["needs"]} == {"test", "package", "image"}
    assert "inputs.publish" in job["if"]
    assert "refs/heads/main" in job["if"]
    assert any("attest-build-provenance@" in step.get("uses", "") for step in job["steps"])


def test_the_index_of_packages_gets_no_password() -> None:
    job = RELEASE["publish-package"]
    (publish,) = (step for step in job["steps"] if "pypi-publish@" in step.get("uses", ""))
    assert "password" not in publish["with"]
    assert job["permissions"]["id-token"] == "write"

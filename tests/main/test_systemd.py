"""The systemd units: systemd takes them, they start commands that exist, and they stop where a restart cannot help."""

import configparser
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import typer

from app.main.cli import app
from app.main.cli_errors import PERMANENT
from app.main.cli_systemd import UNITS
from app.settings import Settings, variable
from tests.e2e.test_demo import run_command
from tests.needs import lacking

NAMES = sorted(path.name for path in UNITS.glob("*.service"))
OF_PODS = ("jobplane.service", "jobplane-agent.service")  # have pods below them
# What a unit may do to the machine, as systemd-analyze counts it: 0 is nothing, 10 everything.
EXPOSURE = {"jobplane-api.service": 20, "jobplane-controllers.service": 20, "jobplane.service": 70}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("units")
    shown = run_command(folder, "systemd", str(folder))
    assert shown.stdout.split() == [str(folder / name) for name in NAMES], shown.stderr
    return folder


def service(path: Path) -> configparser.SectionProxy:
    made = configparser.ConfigParser(interpolation=None, strict=False, delimiters=("=",))
    made.optionxform = str  # type: ignore[assignment, method-assign]
    made.read(path)
    return made["Service"]


def analyze(*words: str) -> str:
    if not shutil.which("systemd-analyze"):
        lacking("needs systemd-analyze")
    done = subprocess.run(["systemd-analyze", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stderr


@pytest.mark.parametrize("name", NAMES)
def test_systemd_takes_a_unit_without_a_warning(written: Path, name: str) -> None:
    assert analyze("verify", "--man=no", str(written / name)) == ""


@pytest.mark.parametrize("name", EXPOSURE)
def test_a_unit_is_confined(written: Path, name: str) -> None:
    analyze("security", "--offline=true", f"--threshold={EXPOSURE[name]}", str(written / name))


def test_units_are_there_for_every_part() -> None:
    started = {service(UNITS / name)["ExecStart"].split()[1] for name in NAMES}
    assert started == {"up", "api", "controllers", "agent"}


@pytest.mark.parametrize("name", NAMES)
def test_a_unit_starts_a_command_of_this_installation(written: Path, name: str) -> None:
    program, command, *options = shlex.split(service(written / name)["ExecStart"])
    assert Path(program).is_file()
    typer.main.get_group(app).commands[command].make_context(command, options)


@pytest.mark.parametrize("name", NAMES)
def test_a_unit_restarts_unless_that_cannot_help(name: str) -> None:
    read = service(UNITS / name)
    assert read["Restart"] == "always"
    assert {int(each) for each in read["RestartPreventExitStatus"].split()} == PERMANENT


@pytest.mark.parametrize("name", NAMES)
def test_pods_outlive_a_stop_of_their_unit(name: str) -> None:
    read = service(UNITS / name)
    expected = ("process", "yes") if name in OF_PODS else (None, None)
    assert (read.get("KillMode"), read.get("Delegate")) == expected


@pytest.mark.parametrize("name", NAMES)
def test_a_unit_names_settings_that_exist(name: str) -> None:
    named = set(re.findall(r"JOBPLANE_[A-Z_]+", (UNITS / name).read_text(encoding="utf-8")))
    assert named <= {variable(field) for field in Settings.model_fields}


def test_a_folder_that_is_missing_is_named(tmp_path: Path) -> None:
    shown = run_command(tmp_path, "systemd", "absent")
    assert shown.returncode == 78
    assert shown.stderr == "absent is not a folder: create it, or pass another one\n"

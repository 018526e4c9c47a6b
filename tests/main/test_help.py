"""`jobplane --help`: what it says of defaults and variables is what the settings are."""

import inspect
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from pydantic import SecretStr
from typer.testing import CliRunner

from app.main.cli import app
from app.settings import Settings, read_by, shown_default, variable

ROOT = Path(__file__).parents[2]


def shown(*command: str) -> str:
    """On one line, without the breaks that fit it to a terminal."""
    done = CliRunner().invoke(app, [*command], env={"COLUMNS": "10000", "TERMINAL_WIDTH": "10000"})
    assert done.exit_code == 0, done.output
    return " ".join(done.stdout.split())


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in getattr(group, "commands", {}).items():
        yield (*path, name), command
        yield from commands(command, (*path, name))


COMMANDS = dict(commands(typer.main.get_command(app)))
FLAGS = [
    (path, param.name)
    for path, command in COMMANDS.items()
    for param in command.params
    if param.name in Settings.model_fields and path != ("demo",)
]


@pytest.mark.parametrize("command", sorted({path for path, _ in FLAGS}), ids=" ".join)
def test_the_help_of_a_flag_shows_its_true_default_and_its_variable(command: tuple[str, ...]) -> None:
    text = shown(*command, "--help")
    for name in [name for path, name in FLAGS if path == command]:
        assert f"[default: {shown_default(name)}; {variable(name)}]" in text


def test_a_default_is_shown_as_it_is_and_one_that_is_empty_by_what_it_means() -> None:
    for name, field in Settings.model_fields.items():
        plain = field.default.get_secret_value() if isinstance(field.default, SecretStr) else field.default
        if plain not in ("", None):
            assert shown_default(name).lower() == str(plain).lower()
    assert shown_default("node_name") == "this host's name; simulated"


def test_the_demo_shows_the_folder_that_it_uses() -> None:
    from app.main import cli

    assert "[default: build/demo]" in shown("demo", "--help")
    assert 'Path("build/demo")' in inspect.getsource(cli.demo)


def test_every_setting_has_a_flag_or_is_named_by_the_programs_that_read_it() -> None:
    ends = {program: shown(program, "--help") for program in ("up", "api", "controllers", "agent")}
    flags = {name for _, name in FLAGS}
    for name in Settings.model_fields:
        assert shown_default(name)
        assert name in flags or read_by(name)
        for program in (*read_by(name), *(["up"] if read_by(name) else [])):
            told = ends[program].replace("- ", "-")  # lines are wrapped after hyphens, too
            assert f"{variable(name)} ({shown_default(name)})" in told


def test_every_option_is_described() -> None:
    options = [(path, param) for path, command in COMMANDS.items() for param in command.params]
    assert [(path, param.name) for path, param in options if not param.help] == []


def test_the_page_of_settings_is_generated_from_them() -> None:
    generated = runpy.run_path(str(ROOT / "scripts" / "settings_page.py"))["page"]()
    assert (ROOT / "docs" / "settings.md").read_text() == generated, "run `make settings`"


def test_the_version_is_printed_with_that_of_the_kubernetes_api() -> None:
    from app.api.resources.version import MAJOR, MINOR, jobplane_version

    assert shown("--version") == f"jobplane {jobplane_version()} (Kubernetes API v{MAJOR}.{MINOR})"


def test_the_help_begins_with_what_the_program_is_for() -> None:
    assert "Kubernetes Jobs without running Kubernetes" in shown("--help")

"""Prints docs/settings.md: every setting as `app.settings` declares it, and the commands that have a flag for it.

    python scripts/settings_page.py > docs/settings.md

A test in tests/main compares the two.
"""

import sys
from typing import Any

import typer.main

from app.main.cli import app
from app.settings import Settings, read_by, shown_default, variable

HEAD = """# Settings

A flag of a command comes before a variable of its environment, and that before the default. `jobplane up` hands its settings
on to the API, the controllers and the agent that it starts. Paths may be relative to the working directory, or begin with `~`.

This page is generated from [app/settings](../app/settings) by `make settings`.

| variable | default | flag of | what it is |
|---|---|---|---|
"""
HAS_FLAGS = ("up", "api", "controllers", "agent", "migrate", "token", "kubeconfig", "logs")
OTHERS = """
Two variables are none of these: `JOBPLANE_PG_BIN` is the folder of the Postgres server that `jobplane up`
starts (`postgres`, `initdb`); `DOCKER_HOST` is where `--runtime docker` finds its engine.
"""


def page() -> str:
    return HEAD + "".join(map(row, Settings.model_fields)) + OTHERS


def row(name: str) -> str:
    commands = flagged(typer.main.get_command(app), name)
    where = (
        f"`--{name.replace('_', '-')}`: {', '.join(commands)}"
        if commands
        else f"none; read by {', '.join(read_by(name))}"
    )
    text = Settings.model_fields[name].description
    return f"| `{variable(name)}` | {shown_default(name)} | {where} | {text} |\n"


def flagged(group: Any, name: str) -> list[str]:
    """The commands that have a flag for it, in the order of `HAS_FLAGS`."""
    return [each for each in HAS_FLAGS if any(param.name == name for param in group.commands[each].params)]


if __name__ == "__main__":
    sys.stdout.write(page())

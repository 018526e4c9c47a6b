"""Dockerfile and docker-compose.yml, as far as they can be judged without Docker: what they ask of `jobplane` it knows."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from app.main.cli import app

ROOT = Path(__file__).parents[1]
IMAGE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
COMPOSED = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load(COMPOSED)["services"]
OURS = {name: service for name, service in SERVICES.items() if service["image"] == "jobplane"}


def _commands() -> dict[str, list[str]]:
    """By where they stand: what `jobplane` is started with."""
    found = {f"service {name}": service["command"] for name, service in OURS.items() if "entrypoint" not in service}
    for number, line in enumerate(re.findall(r"^ *jobplane ([a-z ]+)$", OURS["migrate"]["command"][0], re.MULTILINE)):
        found[f"migrate, {number}"] = line.split()
    for file, text in (("Dockerfile", IMAGE), ("docker-compose.yml", COMPOSED)):
        for line in re.findall(r"^#   docker .*exec \S+ jobplane (.*?)(?: >.*)?$", text, re.MULTILINE):
            found[f"head of {file}"] = line.split()
    default = re.search(r"^CMD (.*)$", IMAGE, re.MULTILINE)
    assert default
    return {**found, "image": json.loads(default[1])}


COMMANDS = _commands()


@pytest.mark.parametrize("where", COMMANDS)
def test_a_command_is_one_that_jobplane_knows(where: str) -> None:
    """With its options; nothing is run."""
    name, *options = COMMANDS[where]
    command = typer.main.get_group(app).commands[name]
    if isinstance(command, typer.core.TyperGroup) and options and options[0] in command.commands:
        command, options = command.commands[options[0]], options[1:]
    command.make_context(name, options)


def test_commands_are_found_wherever_they_are() -> None:
    assert {command[0] for command in COMMANDS.values()} == {
        "api",
        "controllers",
        "agent",
        "migrate",
        "certificates",
        "kubeconfig",
        "up",
    }
    assert {"head of Dockerfile", "head of docker-compose.yml"} <= COMMANDS.keys()


def test_the_agent_and_so_its_pods_are_kept_from_the_database() -> None:
    agent = OURS["agent"]
    assert "JOBPLANE_DATABASE_URL" not in agent.get("environment", {})
    assert not set(SERVICES["postgres"]["networks"]) & set(agent.get("networks", ["default"]))


def test_one_service_builds_the_image_for_all() -> None:
    assert [name for name, service in OURS.items() if "build" in service] == ["migrate"]


def test_manifests_that_the_head_names_are_there() -> None:
    named = re.findall(r"apply -f (\S+)", COMPOSED)
    assert named
    assert all((ROOT / name).is_file() for name in named)

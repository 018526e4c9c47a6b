"""`jobplane systemd`: write the systemd units, which every installation carries, to a folder. Added by `app.main.cli`."""

import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from app.main.cli_errors import ConfigError

UNITS = Path(__file__).resolve().parents[2] / "deploy" / "systemd"  # in a checkout and in an installed wheel
PROGRAM = "/usr/local/bin/jobplane"  # as the units name it


def systemd(
    folder: Annotated[Path, typer.Argument(help="Folder for the units; /etc/systemd/system is where systemd looks.")],
) -> None:
    """Write systemd units for `up`, API, controllers and agent to a folder, and list them. They start this very program."""
    program = _find_program()
    if not folder.is_dir():
        raise ConfigError(f"{folder} is not a folder: create it, or pass another one")
    for unit in sorted(UNITS.glob("*.service")):
        target = folder / unit.name
        target.write_text(unit.read_text(encoding="utf-8").replace(PROGRAM, program), encoding="utf-8")
        typer.echo(target)


def _find_program() -> str:
    """Return the path of the command `jobplane` of this installation."""
    beside = Path(sys.executable).with_name("jobplane")
    found = str(beside) if beside.exists() else shutil.which("jobplane")
    if not found:
        raise ConfigError("the command jobplane is not installed: units need its path; see docs/install.md")
    return found

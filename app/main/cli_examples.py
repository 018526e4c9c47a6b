"""`jobplane examples`: copy the example manifests, which every installation carries, to a folder. Added by `app.main.cli`."""

import shutil
from pathlib import Path
from typing import Annotated

import typer

from app.main.cli_errors import CommandError

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"  # in a checkout and in an installed wheel


def examples(
    folder: Annotated[Path, typer.Argument(help="Folder to create.", show_default="examples")] = Path("examples"),
) -> None:
    """Copy the example manifests to a folder, and list them. Files that are there already stay as they are."""
    folder.mkdir(parents=True, exist_ok=True)
    for source in sorted(EXAMPLES.rglob("*")):
        if source.is_file() and "__pycache__" not in source.parts:
            typer.echo(_copy(source, folder / source.relative_to(EXAMPLES)))


def _copy(source: Path, target: Path) -> Path:
    """Copy a file; raise CommandError if another file is in the way."""
    if target.exists() and target.read_bytes() != source.read_bytes():
        raise CommandError(f"{target} exists and differs from the example: pass another folder")
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    return target

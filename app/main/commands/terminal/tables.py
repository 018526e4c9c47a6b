"""Tables for terminals, and objects as JSON or YAML. Used by every command that prints lists or objects.

A table never is wider than the terminal: its widest columns are cut, and `…` shows where. Into a file or a pipe, and with
`-o wide`, nothing is cut.
"""

import json
import shutil
import sys
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Any

import typer

GAP = "   "
NARROWEST = 8


class Output(StrEnum):
    """Forms of output."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


OutputOption = Annotated[
    Output, typer.Option("--output", "-o", help="Form of the output: a table that fits, all columns uncut, or data.")
]


def terminal_width() -> int | None:
    """Return the columns of the terminal that stdout is; None if it is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]], width: int | None) -> None:
    """Print a table of at most `width` columns; None: as wide as it is."""
    for line in format_table(header, rows, width):
        typer.echo(line)


def format_table(header: Sequence[str], rows: Sequence[Sequence[str]], width: int | None) -> list[str]:
    """Lay out the lines of a table. Cells of several lines become one line."""
    cells = [list(header), *([" ".join(cell.split()) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    if width is not None:
        widths = _shrink(widths, width - len(GAP) * (len(widths) - 1))
    return [
        GAP.join(_cut(cell, room).ljust(room) for cell, room in zip(row, widths, strict=True)).rstrip() for row in cells
    ]


def _shrink(widths: list[int], room: int) -> list[int]:
    """Take from the widest columns until all fit, but leave each NARROWEST."""
    widths = list(widths)
    while sum(widths) > room and max(widths) > NARROWEST:
        widest = widths.index(max(widths))
        second = max((each for place, each in enumerate(widths) if place != widest), default=0)
        least = max(NARROWEST, min(second, widths[widest] - 1))
        widths[widest] -= min(widths[widest] - least, sum(widths) - room)
    return widths


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else f"{text[: max(room - 1, 0)]}…"


def print_object(document: Any, output: Output) -> None:
    """Print an object, or a list of them, as JSON or YAML."""
    if output is Output.JSON:
        typer.echo(json.dumps(document, indent=2, ensure_ascii=False))
        return
    import yaml

    typer.echo(yaml.safe_dump(document, sort_keys=False, allow_unicode=True), nl=False)

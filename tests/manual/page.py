"""A page of the manual as commands and files: what `test_pages.py` runs.

In a `console` block a line that begins with `$ ` is a command (lines that begin with `> ` continue it), and the lines below it
are what it prints. A `yaml` or `python` block whose first line is `# file: NAME` is a file of the reader's folder.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_BLOCK = re.compile(r"^```(?P<kind>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"# file: (?P<name>[\w.-]+)$")


@dataclass(frozen=True)
class File:
    """A file that the page tells the reader to write."""

    name: str
    text: str


@dataclass(frozen=True)
class Command:
    """A command line, and the lines that the page shows below it. `…` stands for anything."""

    line: str
    output: tuple[str, ...]

    @property
    def is_refused(self) -> bool:
        """Return whether the page shows that the command fails."""
        return any(line.startswith("Error") for line in self.output[:1])


def read_page(path: Path) -> list[File | Command]:
    """Return the steps of a page, in order."""
    return [step for block in _BLOCK.finditer(path.read_text()) for step in _steps(block["kind"], block["text"])]


def _steps(kind: str, text: str) -> Iterator[File | Command]:
    first = text.partition("\n")[0]
    if kind == "console":
        yield from _commands(text)
    elif found := _FILE.fullmatch(first):
        yield File(found["name"], text.partition("\n")[2])


def _commands(text: str) -> Iterator[Command]:
    line, output = "", list[str]()
    for each in text.splitlines():
        if each.startswith("$ "):
            if line:
                yield Command(line, tuple(output))
            line, output = each.removeprefix("$ "), []
        elif each.startswith("> ") and not output:
            line += "\n" + each.removeprefix("> ")
        else:
            output.append(each)
    yield Command(line, tuple(output))


def find_missing(shown: tuple[str, ...], printed: str) -> str:
    """Return the first line of the page that was not printed, in order, below the one before; empty if all were.

    Blanks count as one, numbers of a time (`5s`, `12:30:01`), ages and random suffixes are written as `…` in the page.
    """
    lines = iter(" ".join(each.split()) for each in printed.splitlines())
    for line in shown:
        pattern = re.compile(".*".join(map(re.escape, " ".join(line.split()).split("…"))))
        if line.strip() and not any(pattern.fullmatch(each) for each in lines):
            return line
    return ""

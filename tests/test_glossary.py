"""The pages for developers name modules that are there."""

import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
_PACKAGES = "|".join(sorted(path.name for path in (ROOT / "app").iterdir() if path.is_dir()))
_NAMED = re.compile(rf"`(?:app/)?((?:{_PACKAGES})/[\w/{{}},*.]+)`")


def named(page: str) -> Iterator[str]:
    """Paths below app/ that a page names; `a/{b,c}` names two."""
    for path in _NAMED.findall((ROOT / page).read_text()):
        parts = re.split(r"\{([^}]*)\}", path)
        choices = (part.split(",") if place % 2 else [part] for place, part in enumerate(parts))
        yield from ("".join(chosen) for chosen in product(*choices))


@pytest.mark.parametrize("page", ["docs/glossary.md", "docs/architecture.md", "docs/debugging.md", "CONTRIBUTING.md"])
def test_modules_that_a_page_names_are_there(page: str) -> None:
    paths = set(named(page))
    missing = [path for path in paths if not any([*ROOT.glob(f"app/{path}"), *ROOT.glob(f"app/{path}.py")])]
    assert len(paths) > 1
    assert missing == []

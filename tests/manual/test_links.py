"""Links of all documents: to files that exist, and to headings that exist in them."""

import re
from pathlib import Path

import pytest

from tests.manual.shell import ROOT

DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
_LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]+))?\)")
_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("path", [pytest.param(path, id=str(path.relative_to(ROOT))) for path in DOCUMENTS])
def test_the_links_of_a_document_lead_somewhere(path: Path) -> None:
    text = _FENCED.sub("", path.read_text())
    broken = [
        f"{target}#{heading}" for target, heading in _LINK.findall(text) if not leads_somewhere(path, target, heading)
    ]
    assert broken == []


def leads_somewhere(path: Path, target: str, heading: str) -> bool:
    file = (path.parent / target).resolve() if target else path
    if not file.exists():
        return False
    return not heading or file.is_dir() or heading in anchors(file.read_text())


def anchors(text: str) -> set[str]:
    """The anchors of a document's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", _FENCED.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_page_of_the_manual_is_in_its_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    linked = {target for target, _ in _LINK.findall(index)}
    pages = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    assert {page for page in pages if not page.startswith("decisions/")} - {"README.md"} - linked == set()

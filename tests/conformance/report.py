"""Which of Kubernetes' own scenarios hold, as `docs/conformance.md` tells it.

The hooks of this package's conftest note what came of every test that is marked with a scenario; `test_document` writes
the page, or compares it with the one that is committed.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "conformance.md"
WRITE = "JOBPLANE_WRITE_CONFORMANCE"  # in the environment: the page is written
RESULTS = pytest.StashKey["Results"]()

PASSES, FAILS, NO_TEST = "passes", "**fails**", "no test"


class Section(NamedTuple):
    letter: str
    count: int
    title: str
    about: str


SECTIONS = (
    Section(
        "J",
        29,
        "Jobs, end to end",
        "What Kubernetes' own end-to-end tests of Jobs demand (test/e2e/apps/job.go). A whole Jobplane runs, and the "
        "containers are real processes.",
    ),
    Section(
        "K",
        11,
        "CronJobs",
        "What its end-to-end tests of CronJobs demand (test/e2e/apps/cronjob.go). The controllers run on a real "
        "database; their clock is moved by hand, so that a minute is over at once.",
    ),
    Section(
        "I",
        30,
        "Jobs, in detail",
        "What its integration tests of the Job controller demand (test/integration/job). The test says what becomes of "
        "the pods, and stops and starts controllers.",
    ),
    Section("X", 15, "More", "What follows from the same rules, and no test of Kubernetes' shows."),
)
_ABOUT = f"""\
# Conformance

Kubernetes' own tests, told again as scenarios and run against Jobplane. `tests/conformance` has a test for each, named
after its number. A run writes this page with `{WRITE}=1`, and fails if it differs from what is committed.
"""
_ROW = re.compile(r"^\| ([A-Z]\d+) \| (.*) \| (.*) \|$", re.MULTILINE)


class Row(NamedTuple):
    number: str
    title: str
    result: str

    def __str__(self) -> str:
        return f"| {self.number} | {self.title} | {self.result} |"


@dataclass
class Results:
    """What one run has shown of each scenario."""

    titles: dict[str, str] = field(default_factory=dict)  # of those that have a test
    outcomes: dict[str, list[str]] = field(default_factory=dict)

    def collected(self, item: pytest.Item) -> None:
        for number, title in scenarios(item):
            self.titles.setdefault(number, title)

    def heard(self, item: pytest.Item, report: pytest.TestReport) -> None:
        if report.when == "call" or not report.passed:
            for number, _ in scenarios(item):
                self.outcomes.setdefault(number, []).append(_outcome(report))

    def row(self, number: str, committed: dict[str, Row]) -> Row:
        """What this run says, or, if it has left the scenario out, what the page says."""
        if number not in self.titles:
            return Row(number, "", NO_TEST)
        if number not in self.outcomes:
            return committed.get(number, Row(number, self.titles[number], NO_TEST))
        return Row(number, self.titles[number], _together(self.outcomes[number]))

    def page(self, committed: str) -> str:
        rows = {found[1]: Row(*found.groups()) for found in _ROW.finditer(committed)}
        return "\n".join([_ABOUT, *(self._section(each, rows) for each in SECTIONS)])

    def _section(self, section: Section, committed: dict[str, Row]) -> str:
        numbers = [f"{section.letter}{number}" for number in range(1, section.count + 1)]
        rows = [self.row(number, committed) for number in numbers]
        passing = sum(each.result == PASSES for each in rows)
        head = [f"## {section.letter}: {section.title}", "", section.about, "", f"{passing} of {len(rows)} pass.", ""]
        return "\n".join([*head, "| | scenario | result |", "|---|---|---|", *map(str, rows), ""])


def scenarios(item: pytest.Item) -> list[tuple[str, str]]:
    """The number and the title of each scenario that a test is about."""
    return [(str(mark.args[0]), str(mark.args[1])) for mark in item.iter_markers("scenario")]


def _outcome(report: pytest.TestReport) -> str:
    if report.passed:
        return PASSES
    if report.skipped and isinstance(report.longrepr, tuple):
        return f"not run: {report.longrepr[2].removeprefix('Skipped: ')}"
    return FAILS


def _together(outcomes: list[str]) -> str:
    """Of all tests of one scenario: one that fails decides; one that was not run says nothing if others were."""
    if FAILS in outcomes:
        return FAILS
    return PASSES if PASSES in outcomes else outcomes[0]

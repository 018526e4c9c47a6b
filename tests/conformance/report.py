"""Which of Kubernetes' own scenarios hold, as `docs/conformance.md` tells it.

The hooks of this package's conftest note what came of every test that is marked with a scenario, in each process that runs
some of them; at the end, the one that all report to writes the page, or compares it with the one that is committed.
"""

import difflib
import os
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

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
        "Kubernetes' end-to-end tests of Jobs (test/e2e/apps/job.go). A complete Jobplane runs, with real processes as "
        "containers.",
    ),
    Section(
        "K",
        11,
        "CronJobs",
        "Kubernetes' end-to-end tests of CronJobs (test/e2e/apps/cronjob.go). The controllers run on a real database; "
        "the test sets their clock, so that no test waits for a minute.",
    ),
    Section(
        "I",
        30,
        "Jobs, in detail",
        "Kubernetes' integration tests of the Job controller (test/integration/job). The test sets the pods' statuses, "
        "and stops and starts controllers.",
    ),
    Section("X", 15, "Further rules", "Rules of Kubernetes that no test above covers."),
)
_ABOUT = f"""\
# Conformance

Kubernetes' own tests of Jobs and CronJobs as scenarios, with their results on Jobplane. `tests/conformance` has a test for each
scenario, named after its number. The test run compares its results with this page and fails if they differ. To write the page,
run the tests with `{WRITE}=1`.
"""
BY_HAND = "## E: "  # the heading of what follows the scenarios: it is written by hand, and kept
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
    files: set[str] = field(default_factory=set)  # that tests come from

    def collected(self, item: pytest.Item) -> None:
        self.files.add(item.path.name)
        for number, title in scenarios(item):
            self.titles.setdefault(number, title)

    def heard(self, item: pytest.Item, report: pytest.TestReport) -> None:
        if report.when == "call" or not report.passed:
            for number, _ in scenarios(item):
                self.outcomes.setdefault(number, []).append(_outcome(report))

    def told(self) -> dict[str, Any]:
        """For another process."""
        return asdict(self)

    def join(self, told: dict[str, Any]) -> None:
        """What another process has shown, too."""
        self.titles |= told["titles"]
        self.files |= told["files"]
        for number, outcomes in told["outcomes"].items():
            self.outcomes.setdefault(number, []).extend(outcomes)

    def fault(self) -> str:
        """What is wrong with the committed page, which is written if that was asked for; nothing if not all was collected."""
        if not self.outcomes or not _files() <= self.files:
            return ""
        committed = PAGE.read_text() if PAGE.exists() else ""
        made = self.page(committed)
        if os.environ.get(WRITE):
            PAGE.write_text(made)
            return ""
        lines = difflib.unified_diff(
            committed.splitlines(), made.splitlines(), "committed", "this run", lineterm="", n=0
        )
        return "" if made == committed else "\n".join([*lines, f"run the tests with {WRITE}=1 and commit {PAGE.name}"])

    def row(self, number: str, committed: dict[str, Row]) -> Row:
        """What this run says, or, if it has left the scenario out, what the page says."""
        if number not in self.titles:
            return Row(number, "", NO_TEST)
        if number not in self.outcomes:
            return committed.get(number, Row(number, self.titles[number], NO_TEST))
        return Row(number, self.titles[number], _together(self.outcomes[number]))

    def page(self, committed: str) -> str:
        rows = {found[1]: Row(*found.groups()) for found in _ROW.finditer(committed)}
        _, heading, rest = committed.partition(f"\n{BY_HAND}")
        return "\n".join([_ABOUT, *(self._section(each, rows) for each in SECTIONS)]) + heading + rest

    def _section(self, section: Section, committed: dict[str, Row]) -> str:
        numbers = [f"{section.letter}{number}" for number in range(1, section.count + 1)]
        rows = [self.row(number, committed) for number in numbers]
        passing = sum(each.result == PASSES for each in rows)
        head = [f"## {section.letter}: {section.title}", "", section.about, "", f"{passing} of {len(rows)} pass.", ""]
        return "\n".join([*head, "| | scenario | result |", "|---|---|---|", *map(str, rows), ""])


def scenarios(item: pytest.Item) -> list[tuple[str, str]]:
    """The number and the title of each scenario that a test is about."""
    return [(str(mark.args[0]), str(mark.args[1])) for mark in item.iter_markers("scenario")]


def _files() -> set[str]:
    """Those with scenarios."""
    return {
        path.name for path in Path(__file__).parent.glob("test_*.py") if "pytest.mark.scenario(" in path.read_text()
    }


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

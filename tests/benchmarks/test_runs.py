"""`make bench` where a program is missing, or a case breaks: the results of all other cases are kept and shown."""

from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from benchmarks import report, runs
from benchmarks.__main__ import code
from benchmarks.case import Case
from benchmarks.cases import engines
from benchmarks.cluster import Checkout
from benchmarks.figures import Figure, cpu_each
from benchmarks.machine import Machine

HERE = Checkout(Path(__file__).parents[2])
MACHINE = Machine(**dict.fromkeys(Machine.__dataclass_fields__, ""))


async def _works(checkout: Checkout, scale: float) -> list[Figure]:
    return [Figure(name="speed", value=42.0, unit="pods/s")]


async def _breaks(checkout: Checkout, scale: float) -> list[Figure]:
    raise RuntimeError("it fell over")


FIRST = Case(name="first", about="works", run=_works)
LACKS = Case(name="lacks", about="cannot run here", run=_breaks, missing=lambda: ["dockerd", "containerd"])
BREAKS = Case(name="breaks", about="breaks", run=_breaks)
LAST = Case(name="last", about="works", run=_works)


async def results(*cases: Case) -> list[runs.Result]:
    return [each async for each in runs.all_of(cases, [HERE], 1.0, 2)]


async def test_a_case_that_lacks_a_program_is_skipped_and_says_so() -> None:
    found = await results(FIRST, LACKS, LAST)

    said = [report.table(found, beside=False), *report.notes(found)]
    assert [line.split()[:3] for line in said[0].splitlines()[1:]] == [
        ["first", "speed", "42.0"],
        ["lacks", "SKIPPED"],
        ["last", "speed", "42.0"],
    ]
    assert "  SKIPPED: this machine lacks containerd, dockerd" in said
    assert code(found) == 0


async def test_a_case_that_breaks_leaves_the_results_of_the_others() -> None:
    found = await results(FIRST, BREAKS, LAST)

    said = [report.table(found, beside=False), *report.notes(found)]
    assert [line.split()[:2] for line in said[0].splitlines()[1:]] == [
        ["first", "speed"],
        ["breaks", "BROKE"],
        ["last", "speed"],
    ]
    assert f"  BROKE on {HERE.path}: RuntimeError: it fell over" in said
    assert code(found) == 1


async def test_what_was_skipped_or_broke_is_in_the_document() -> None:
    found = await results(FIRST, LACKS, BREAKS)

    document = msgspec.json.decode(report.document(found, MACHINE, {"at": datetime.now(UTC).isoformat()}))

    assert [(len(each["runs"]), bool(each["broken"]), bool(each["skipped"])) for each in document["cases"]] == [
        (2, False, False),
        (0, False, True),
        (0, True, False),
    ]


async def test_the_document_has_the_commit_what_others_used_and_cpu_by_process() -> None:
    async def measures(checkout: Checkout, scale: float) -> list[Figure]:
        return [cpu_each("Job", {"api": 2.0, "controllers": 3.0}, 1_000)]

    found = await results(Case(name="cpu", about="has CPU by process", run=measures))
    document = msgspec.json.decode(report.document(found, MACHINE, {"checkouts": [HERE.commit()]}))

    (run, _) = document["cases"][0]["runs"]
    assert run["figures"][0]["parts"] == {"controllers": 3.0, "api": 2.0}
    assert run["others"] >= 0
    assert document["checkouts"] == [HERE.commit()]
    assert "cpu" in document["machine"]


def test_a_machine_without_engines_skips_what_measures_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    assert {"containerd", "dockerd", "runc"} <= set(engines.CASE.missing())

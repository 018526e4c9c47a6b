"""How results are shown: a plain table for people, JSON for programs."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import msgspec

from benchmarks.figures import Figure, middle, ratios
from benchmarks.machine import Machine
from benchmarks.runs import Result, Run

HEAD = ("case", "figure", "value", "target", "")
HEAD_BESIDE = ("case", "figure", "value", "other", "ratio", "target", "")


def table(results: Sequence[Result], beside: bool) -> str:
    """`beside`: there is another checkout to compare with."""
    rows: list[tuple[str, ...]] = [HEAD_BESIDE if beside else HEAD]
    rows += [row for result in results for row in _rows(result, beside)]
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def notes(results: Sequence[Result]) -> Iterator[str]:
    """What does not fit in the table."""
    if any(result.theirs for result in results):
        yield "ratio: value by the other's, of runs next to each other; the median if there are several"
    for result in results:
        yield f"{result.case.name}: {result.case.about}"
        yield from (f"  {each.name}: {each.note}" for each in middle(_figures(result.ours)) if each.note)
        noise = max((run.others for run in result.ours + result.theirs), default=0.0)
        if noise > 0.2:
            yield f"  disturbed: other processes used {noise:.0%} of the machine"
        yield from (f"  BROKE {why}" for why in result.broken)
        yield from [f"  SKIPPED: {result.skipped}"] if result.skipped else []


def _figures(runs: Sequence[Run]) -> list[list[Figure]]:
    return [run.figures for run in runs]


def _rows(result: Result, beside: bool) -> Iterator[tuple[str, ...]]:
    ours, theirs = _figures(result.ours), _figures(result.theirs)
    if not ours:
        yield (
            result.case.name,
            "SKIPPED" if result.skipped else "BROKE",
            *[""] * (len(HEAD_BESIDE if beside else HEAD) - 2),
        )
    others = [_number(each) for each in middle(theirs)]
    compared = [f"{each:.2f}" for each in ratios(ours, theirs)]
    for place, figure in enumerate(middle(ours)):
        middle_cells = [(cells[place] if cells else "-") for cells in (others, compared)] if beside else []
        yield (result.case.name, figure.name, _number(figure), *middle_cells, *_verdict(figure))


def _verdict(figure: Figure) -> tuple[str, str]:
    if figure.target is None:
        return "", ""
    sign = ">=" if figure.higher_is_better else "<="
    return f"{sign} {figure.target:g}", "ok" if figure.is_met else "MISSED"


def _number(figure: Figure) -> str:
    digits = 0 if figure.value >= 1000 else 1 if figure.value >= 10 else 2
    return f"{figure.value:,.{digits}f} {figure.unit}"


def document(results: Sequence[Result], machine: Machine, about: dict[str, Any]) -> bytes:
    """Everything, each single run included."""
    whole = {**about, "machine": asdict(machine), "cases": [_case(result) for result in results]}
    return msgspec.json.format(msgspec.json.encode(whole), indent=2)


def _case(result: Result) -> dict[str, Any]:
    ours, theirs = _figures(result.ours), _figures(result.theirs)
    return {
        "name": result.case.name,
        "about": result.case.about,
        "figures": [{**asdict(each), "ok": each.is_met} for each in middle(ours)],
        "ratios": ratios(ours, theirs),
        "runs": [asdict(run) for run in result.ours],
        "against": [asdict(run) for run in result.theirs],
        "broken": result.broken,
        "skipped": result.skipped,
    }

"""Runs cases, on one checkout or alternately on two, and keeps what came out. A case that breaks stops no other.

A case for which this machine lacks something is skipped.
"""

import asyncio
import resource
import sys
import time
import traceback
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

from benchmarks import processes
from benchmarks.case import Case
from benchmarks.cluster import Checkout
from benchmarks.figures import Figure


@dataclass(frozen=True)
class Run:
    """One run of a case. `others` is how much of the machine neither we nor the service used, but others did."""

    figures: list[Figure]
    seconds: float
    others: float


@dataclass
class Result:
    """All runs of a case: our own, and those of the other checkout, the n-th beside the n-th.

    skipped: why it was not run, if it was not. broken: why runs of it failed.
    """

    case: Case
    ours: list[Run] = field(default_factory=list)
    theirs: list[Run] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    skipped: str = ""


async def all_of(
    cases: Sequence[Case], checkouts: Sequence[Checkout], scale: float, repeat: int
) -> AsyncIterator[Result]:
    """Every case `repeat` times on each checkout in turn; the first checkout is ours."""
    for case in cases:
        result = Result(case)
        if lacks := case.missing():
            result.skipped = f"this machine lacks {', '.join(sorted(lacks))}"
            say(f"{case.name} SKIPPED: {result.skipped}")
        for turn in range(0 if result.skipped else repeat):
            for checkout, runs in zip(checkouts, (result.ours, result.theirs), strict=False):
                say(f"{case.name} {turn + 1}/{repeat} on {checkout.path} ...")
                await _once(result, runs, checkout, scale)
        yield result


async def _once(result: Result, runs: list[Run], checkout: Checkout, scale: float) -> None:
    began, busy, own = time.monotonic(), processes.busy(), _own_cpu()
    try:
        async with asyncio.timeout(result.case.longest):
            figures = await result.case.run(checkout, scale)
    except Exception as error:  # whatever it is, the other cases go on
        why = "".join(traceback.format_exception(error))
        result.broken.append(f"on {checkout.path}: {type(error).__name__}: {error}")
        say(f"{result.case.name} BROKE on {checkout.path}\n{why}")
        return
    busy, own = processes.busy() - busy, _own_cpu() - own
    seconds = time.monotonic() - began
    run = Run(figures, seconds, max(0.0, busy - own) / (seconds * processes.CORES))
    runs.append(run)
    said = ", ".join(f"{each.name} {each.value:.4g} {each.unit}" for each in figures)
    say(f"  {said} ({run.seconds:.0f} s, others used {run.others:.0%} of the machine)")


def _own_cpu() -> float:
    """Ours and that of the services that we have started and ended."""
    mine, waited = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return mine.ru_utime + mine.ru_stime + waited.ru_utime + waited.ru_stime


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)

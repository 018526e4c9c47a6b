"""The command line: `python -m benchmarks --help`. Ends with 1 if a case broke, not if one was skipped or a target missed."""

import argparse
import asyncio
import os
import resource
import signal
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import uvloop

from benchmarks import machine, report, runs
from benchmarks.case import Case
from benchmarks.cases import CASES
from benchmarks.cluster import Checkout

HERE = Path(__file__).resolve().parent.parent


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Measure Jobplane, started fresh for each case."
    )
    names = [case.name for case in CASES]
    parser.add_argument("--only", nargs="+", choices=names, metavar="NAME", help=f"of {', '.join(names)}")
    parser.add_argument("--scale", type=float, default=1.0, help="size of the cases; targets are meant for 1")
    parser.add_argument("--repeat", type=int, default=1, help="run each case so often and show the median")
    parser.add_argument(
        "--against", type=Path, metavar="DIR", help="another checkout with a .venv, to run in turns with"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="instead of bench-results/TIME.json")
    return parser.parse_args()


async def _run(cases: list[Case], checkouts: list[Checkout], given: argparse.Namespace) -> int:
    _end_on(signal.SIGTERM)
    began, load = datetime.now(UTC), os.getloadavg()
    async with checkouts[0].up(settle=0) as cluster:  # also warms what the first start reads from the disk
        described = machine.described(cluster.postgres_version(), load)
    results: list[runs.Result] = []
    try:
        async for result in runs.all_of(cases, checkouts, given.scale, given.repeat):
            results.append(result)  # noqa: PERF401 - those before an interruption are shown, too
    finally:
        _show(results, described, checkouts, given, began, load[0])
    return code(results)


def code(results: Sequence[runs.Result]) -> int:
    """What the program ends with: 1 if a case broke."""
    return 1 if any(result.broken for result in results) else 0


def _show(
    results: Sequence[runs.Result],
    described: machine.Machine,
    checkouts: Sequence[Checkout],
    given: argparse.Namespace,
    began: datetime,
    load: float,
) -> None:
    commits = [f"{each.path} at {each.commit()}" for each in checkouts]
    about = {"at": began.isoformat(), "scale": given.scale, "repeat": given.repeat, "checkouts": commits}
    file = given.json or HERE / "bench-results" / f"{began:%Y%m%dT%H%M%SZ}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(report.document(results, described, about))
    print(f"{described.cpu}, {described.cores} cores, {described.memory_gib} GiB, Linux {described.kernel}")
    print(f"Python {described.python}, {described.postgres}, data on {described.data_on}")
    print(f"load {load:.1f} at start, scale {given.scale:g}")
    print(*commits, "", report.table(results, beside=len(checkouts) > 1), "", *report.notes(results), "", sep="\n")
    print(f"every run: {file}")


def _end_on(number: signal.Signals) -> None:
    """As Ctrl-C does already: nothing that was started stays behind."""
    task = asyncio.current_task()
    if task is not None:
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)


def main() -> int:
    given = _arguments()
    checkouts = [Checkout(HERE), *([Checkout(given.against.resolve())] if given.against else [])]
    for each in checkouts:
        if not each.program.exists():
            print(f"{each.program} is not there: run `make setup` in {each.path}", file=sys.stderr)
            return 2
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # 1,000 watchers
    cases = [case for case in CASES if not given.only or case.name in given.only]
    try:
        return uvloop.run(_run(cases, checkouts, given))
    except (KeyboardInterrupt, asyncio.CancelledError):
        return 130


if __name__ == "__main__":
    sys.exit(main())

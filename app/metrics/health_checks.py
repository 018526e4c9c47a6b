"""Health checks in apiserver's format: a line for each check, of which some can be left out. Pure but for what the checks ask.

The API's probes (`app.api.routers.health`) and the listener of the other programs (`app.metrics.listener`) answer with them.
"""

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import NamedTuple


class Check(NamedTuple):
    """One thing that must hold. `find_fault` returns why it does not, or an empty string."""

    name: str
    find_fault: Callable[[], Awaitable[str]]


class Report(NamedTuple):
    """The answer of a probe: whether all holds, the lines of `?verbose`, and the first fault."""

    holds: bool
    lines: str
    fault: str


async def _ping() -> str:
    return ""


PING = Check("ping", _ping)


async def report(probe: str, checks: Sequence[Check], excluded: Collection[str] = ()) -> Report:
    """Run the checks of a probe, such as readyz, but for those that are excluded by name."""
    faults = {each.name: "" if each.name in excluded else await each.find_fault() for each in checks}
    lines = [_line(name, fault, is_excluded=name in excluded) for name, fault in faults.items()]
    if unknown := sorted({*excluded} - {*faults})[:10]:
        quoted = ", ".join(f'"{each[:100]}"' for each in unknown)
        lines.append(f"warn: some health checks cannot be excluded: no matches for {quoted}")
    first = next(filter(None, faults.values()), "")
    lines.append(f"{probe} check {'failed' if first else 'passed'}\n")
    return Report(not first, "\n".join(lines), first)


def _line(name: str, fault: str, *, is_excluded: bool) -> str:
    if fault:
        return f"[-]{name} failed: {fault}"
    return f"[+]{name} excluded: ok" if is_excluded else f"[+]{name} ok"

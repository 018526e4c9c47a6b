"""What a tree of processes costs, read from /proc: CPU by role, and memory. Linux only."""

import os
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

CORES = len(os.sched_getaffinity(0))
_TICKS = os.sysconf("SC_CLK_TCK")
POSTGRES = "postgres"
_ESTABLISHED = "01"  # in /proc/net/tcp


@dataclass(frozen=True)
class Process:
    """One process. `cpu` is in seconds and counts the ended children that it has waited for."""

    pid: int
    parent: int
    role: str
    cpu: float


def tree(root: int) -> list[Process]:
    """`root` and all that descends from it."""
    children: dict[int, list[Process]] = {}
    everything = {each.pid: each for each in _all()}
    for each in everything.values():
        children.setdefault(each.parent, []).append(each)
    found = [everything[root]] if root in everything else []
    for each in found:  # grows while it is walked
        found.extend(children.get(each.pid, ()))
    return found


def cpu(root: int) -> dict[str, float]:
    """Seconds of user and system time that the tree has used, by role."""
    used: defaultdict[str, float] = defaultdict(float)
    for each in tree(root):
        used[each.role] += each.cpu
    return dict(used)


@dataclass(frozen=True)
class Memory:
    """Bytes. `shared` divides pages that several processes have among them (PSS); `resident` counts them each time."""

    shared: int
    resident: int


def memory(pid: int) -> Memory:
    """Of one process; nothing if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    except OSError:
        return Memory(0, 0)
    sizes = {name: int(rest.split()[0]) * 1024 for name, _, rest in (line.partition(":") for line in lines)}
    return Memory(sizes["Pss"], sizes["Rss"])


def forget_peak(pid: int) -> int:
    """Let the peak of a process's memory begin anew; its resident bytes now."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")
    return peak(pid)


def peak(pid: int) -> int:
    """The most bytes that it has had resident."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def open_files(pid: int) -> int:
    """How many a process has; none if it has ended."""
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return 0


def connections_to(port: int) -> int:
    """How many connections clients on this machine have open to a port of it."""
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    ends = (line.split()[2:4] for line in lines)
    return sum(remote.endswith(f":{port:04X}") and state == _ESTABLISHED for remote, state in ends)


def busy() -> float:
    """Seconds of CPU time that the whole machine has spent on anything."""
    user, nice, system, _idle, _wait, irq, softirq = map(int, Path("/proc/stat").read_text().split(maxsplit=8)[1:8])
    return (user + nice + system + irq + softirq) / _TICKS


def _all() -> Iterator[Process]:
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                yield _read(int(name))
            except (FileNotFoundError, ProcessLookupError):
                continue  # ended meanwhile


def _read(pid: int) -> Process:
    text = Path(f"/proc/{pid}/stat").read_text()
    command, _, rest = text.partition("(")[2].rpartition(")")  # the name may hold blanks and brackets
    fields = rest.split()
    ticks = sum(map(int, fields[11:15]))
    return Process(pid, int(fields[1]), _role(pid, command), ticks / _TICKS)


def _role(pid: int, command: str) -> str:
    if command == POSTGRES:
        return POSTGRES
    arguments = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    if "app.main.cli" in arguments:
        return arguments[arguments.index("app.main.cli") + 1]
    return "up" if "up" in arguments else "others"

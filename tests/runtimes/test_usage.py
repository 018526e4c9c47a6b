"""What containers use: counted for those that run, and for all of their processes."""

from pathlib import Path

import pytest

from app.runtimes.linux import cgroups
from app.runtimes.process import usage as process_usage
from app.runtimes.process.usage import ProcessUsage
from tests.runtimes.conftest import FOREVER, Lab, a_key, exits, script

# Burns a tenth of a second of CPU in the shell's child, then says so. One that has left the session outlives what kills
# that: it ends by itself once the shell has.
BUSY = """python3 -c '
import os, time
shell = os.getppid()
while time.process_time() < 0.1: pass
print("burnt", flush=True)
while os.getppid() == shell: time.sleep(0.02)
'
"""


async def test_only_what_runs_is_told_of(lab: Lab) -> None:
    await lab.run(exits(0), a_key("pod-1"))
    key = await lab.start(FOREVER, a_key("pod-2"))
    await lab.logged(key, b"ready")

    (used,) = await lab.runtime.usage()
    assert used.key == key
    assert used.memory > 0
    assert used.cpu >= 0


async def test_cpu_time_only_grows(lab: Lab) -> None:
    key = await lab.start(FOREVER)
    await lab.logged(key, b"ready")
    first, second = [(await lab.runtime.usage())[0] for _ in range(2)]

    assert second.cpu >= first.cpu


@pytest.mark.parametrize("line", [pytest.param(BUSY, id="a child"), pytest.param(f"setsid {BUSY}", id="that has left")])
async def test_the_work_of_children_counts(process: Lab, line: str) -> None:
    key = await process.start(script(line))
    await process.logged(key, b"burnt")

    (used,) = await process.runtime.usage()
    assert used.cpu >= 90_000_000
    assert used.memory > 1 << 20


async def test_a_runtime_that_was_started_again_counts_on(process: Lab) -> None:
    key = await process.start(script(BUSY))
    await process.logged(key, b"burnt")
    await process.restart()

    (used,) = await process.runtime.usage()
    assert (used.key, used.cpu >= 90_000_000) == (key, True)


SPIKE = f"""exec python3 -c '
import mmap, time
taken = mmap.mmap(-1, {64 << 20})
taken.write(b"x" * {64 << 20})
taken.close()
print("given back", flush=True)
time.sleep(600)
'
"""


async def test_a_peak_is_known_when_it_is_over(process: Lab) -> None:
    key = await process.start(script(SPIKE))
    await process.logged(key, b"given back")

    (used,) = await process.runtime.usage()
    assert used.memory < 64 << 20 < used.peak < 256 << 20


def test_processes_count_for_the_session_that_they_come_from() -> None:
    processes = {
        1: ProcessUsage(parent=0, session=1, ticks=1000, pages=1000),
        10: ProcessUsage(parent=1, session=10, ticks=1, pages=1),
        11: ProcessUsage(parent=10, session=10, ticks=2, pages=1),
        12: ProcessUsage(parent=11, session=12, ticks=4, pages=1),
        13: ProcessUsage(parent=12, session=12, ticks=8, pages=1),
        20: ProcessUsage(parent=1, session=20, ticks=16, pages=1),
        30: ProcessUsage(parent=99, session=30, ticks=32, pages=1),
        40: ProcessUsage(parent=40, session=40, ticks=64, pages=1),
    }
    found = process_usage.add_up({10, 20, 50}, processes)
    tick = found[20].cpu // 16

    assert {session: used.cpu // tick for session, used in found.items()} == {10: 15, 20: 16}
    assert found[10].memory == 4 * found[20].memory
    assert {session: used.largest for session, used in found.items()} == {10: 13, 20: 20}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param({}, (None, None), id="nothing is counted"),
        pytest.param({"cpu.stat": "usage_usec 12\nuser_usec 5\n"}, (12_000, None), id="version 2 without memory"),
        pytest.param(
            {"cpu.stat": "usage_usec 12\n", "memory.current": "900\n", "memory.stat": "anon 1\ninactive_file 300\n"},
            (12_000, 600),
            id="version 2, its idle cache left out",
        ),
        pytest.param(
            {"cpuacct.usage": "77\n", "memory.usage_in_bytes": "900\n", "cpu.stat": "nr_periods 0\n"},
            (77, 900),
            id="version 1",
        ),
        pytest.param({"memory.current": "x", "cpu.stat": "usage_usec x\n"}, (None, None), id="what is no number"),
    ],
)
def test_a_cgroup_tells(tmp_path: Path, files: dict[str, str], expected: tuple[int | None, int | None]) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)

    assert cgroups.usage([tmp_path]) == expected

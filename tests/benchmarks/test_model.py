"""The cost model: what it says of known points, that more never needs less, and that the manual's table is what it says."""

import re
import shlex
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path

import pytest

from benchmarks.cases import CASES
from benchmarks.model import (
    API,
    BURST,
    CONTROLLERS,
    COSTS,
    LABS,
    MEASURED,
    PACED,
    PROCESSES,
    Cost,
    Lab,
    busy_cores,
    extrapolated,
    job_cost,
    load,
    most_nodes,
    most_pods_a_second,
    need,
    table,
)

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "how-to" / "size-and-retention.md"
LAB = Lab(nodes=500, jobs=20.0, pods=2, running=2_000, kept=5_000, watchers=10, reads=10.0)
MORE = {"nodes": 5_000, "jobs": 60.0, "pods": 9, "running": 9_000, "kept": 90_000, "watchers": 90, "reads": 900.0}


def figures(lab: Lab) -> list[float]:
    found = need(lab)
    return [*found.cores.values(), *found.memory.values(), found.disk_in_all, found.wal_a_day, found.network]


@pytest.mark.parametrize("what", MORE)
def test_more_of_anything_needs_no_less_of_anything(what: str) -> None:
    before, after = figures(LAB), figures(LAB._replace(**{what: MORE[what]}))

    assert all(there >= here for here, there in zip(before, after, strict=True))
    assert after != before


def test_an_empty_lab_needs_what_idle_processes_take_and_nothing_else() -> None:
    found = need(Lab(nodes=0, jobs=0.0))

    assert found.cores == {process: COSTS.standing.of(process) / 1000 for process in PROCESSES}
    assert found.disk_in_all == found.wal_a_day == found.network == 0
    assert found.memory == {process: COSTS.idle.of(process) for process in PROCESSES}


@pytest.mark.parametrize("process", PROCESSES)
def test_a_job_costs_what_was_measured_where_it_was_measured(process: str) -> None:
    assert job_cost(PACED, process) == pytest.approx(COSTS.job_paced.of(process))
    assert job_cost(BURST, process) == pytest.approx(COSTS.job_burst.of(process))
    assert job_cost(BURST * 9, process) == job_cost(BURST, process)


@pytest.mark.parametrize("process", PROCESSES)
def test_a_process_is_full_where_its_jobs_cost_what_those_of_a_burst_do(process: str) -> None:
    lab = Lab(nodes=0)

    most = most_pods_a_second(lab, process)

    assert most == pytest.approx((1_000 - COSTS.standing.of(process)) / COSTS.job_burst.of(process))
    assert busy_cores(lab._replace(jobs=most), process) == pytest.approx(1)
    assert busy_cores(lab._replace(jobs=most * 2), process) > 1.9  # it cannot follow


def test_the_limit_of_the_controllers_fills_them() -> None:
    lab = Lab(nodes=2_000, pods=5, watchers=3)

    most = most_pods_a_second(lab)

    assert load(lab._replace(jobs=most / lab.pods), CONTROLLERS, COSTS.job_burst.controllers) == pytest.approx(1)
    assert most_pods_a_second(lab._replace(nodes=round(most_nodes()) + 1)) == 0


def test_slower_cores_are_busier_and_hold_no_more() -> None:
    quick, slow = need(LAB._replace(replicas=1)), need(LAB._replace(replicas=1), core=2.0)

    assert all(slow.cores[each] == pytest.approx(2 * quick.cores[each]) for each in PROCESSES)
    assert slow.disk == quick.disk


def test_apis_are_added_when_one_is_half_busy_or_has_all_the_agents_it_accepts() -> None:
    assert need(Lab(nodes=1, jobs=100)).replicas == 1
    assert need(Lab(nodes=1, jobs=1_400)).replicas >= 2
    assert need(Lab(nodes=20_000, jobs=0)).connections <= 8_192


def test_replicas_share_the_load_and_each_costs_a_little() -> None:
    one, three = (need(LAB._replace(replicas=count)) for count in (1, 3))

    assert one.cores[API] < three.cores[API] < 3 * one.cores[API]
    assert three.memory[API] > 2.5 * COSTS.idle.api
    assert three.cores[CONTROLLERS] == one.cores[CONTROLLERS]


def test_disk_adds_up() -> None:
    found = need(LAB)

    assert found.disk_in_all == pytest.approx(sum(found.disk.values()))
    assert need(LAB._replace(kept=0)).disk_in_all == pytest.approx(found.disk_in_all - found.disk["kept Jobs"])
    assert need(LAB._replace(hours=12.0)).disk["records"] == pytest.approx(found.disk["records"] / 2)


def test_each_cost_names_a_case_that_there_is_and_its_figure() -> None:
    costs = [getattr(COSTS, each.name) for each in fields(COSTS)]

    assert {each.case for each in costs} <= {case.name for case in CASES}
    assert all(isinstance(each, Cost) and each.figure and each.unit for each in costs)


def test_another_cost_gives_another_need() -> None:
    dearer = replace(COSTS, job_paced=COSTS.job_paced._replace(controllers=9.0))

    assert need(LAB, costs=dearer).cores[CONTROLLERS] > need(LAB).cores[CONTROLLERS]


def test_what_is_beyond_the_sizes_that_were_measured_is_told() -> None:
    assert extrapolated(LAB) == []
    assert extrapolated(LAB._replace(nodes=5_001, pods=1_000)) == ["nodes", "pods_a_second"]
    assert "10,000 nodes*" in table(LABS)
    assert set(MEASURED) <= {*Lab._fields, "pods_a_second"}


def test_the_table_of_the_manual_is_what_the_model_says() -> None:
    assert table(LABS) in PAGE.read_text()


def test_the_commands_of_the_manual_print_tables() -> None:
    lines = re.findall(r"^(?:\.venv/bin/)?python (-m benchmarks\.model.*)$", PAGE.read_text(), re.MULTILINE)

    printed = [
        subprocess.run(
            [sys.executable, *shlex.split(line)], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout
        for line in lines
    ]

    assert len(printed) >= 2
    assert printed[0].strip() == table(LABS)
    assert all("| **Machines**, without the nodes |" in each for each in printed)

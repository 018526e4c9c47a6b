"""Cost model: what a lab needs of cores, memory and disk, from costs that were measured. Pure.

The case `sizes` holds it against three sizes that run here; docs/how-to/size-and-retention.md shows what it says of three labs,
as `python -m benchmarks.cost_model` prints it. Costs are those of two slow cores; a faster one needs less.
"""

from collections.abc import Mapping
from typing import NamedTuple

SECONDS_OF_A_DAY = 86_400
RESERVE = 2.0  # cores that are there for each that is busy: bursts, and repairs after a restart
# Milliseconds of CPU a second for each node that is there, renews its lease and reports: the case `fleet`.
NODE_MS: Mapping[str, float] = {"api": 0.095, "controllers": 0.025, "postgres": 0.020}
# Milliseconds of CPU for each Job of one pod, without its agent's: the case `sizes`.
JOB_MS: Mapping[str, float] = {"api": 3.0, "controllers": 4.0, "postgres": 2.5}
EVENT_MS = 0.03  # of the API, for each change that goes to one watcher
CHANGES_OF_A_JOB = 4  # that a watcher of Jobs is told
IDLE_MIB: Mapping[str, float] = {"api": 110.0, "controllers": 80.0, "postgres": 60.0}
NODE_MIB: Mapping[str, float] = {"api": 0.015, "controllers": 0.02, "postgres": 0.002}
POD_MIB: Mapping[str, float] = {"api": 0.0, "controllers": 0.012, "postgres": 0.0}  # for each that has not ended
DAY_KIB, KEPT_KIB, RECORD_KIB = 22.0, 9.4, 2.3  # of disk for each Job: the case `disk`


class Lab(NamedTuple):
    """`jobs`: a second, of one pod each, over the day; `live`: pods that have not ended; `watchers`: of all Jobs;
    `kept`: ended Jobs that are there; `days`: for which records of deleted Jobs stay."""

    nodes: int
    jobs: float
    live: int = 0
    watchers: int = 0
    kept: int = 0
    days: int = 30


class Need(NamedTuple):
    """Cores that are busy and MiB, by process, without agents; GiB of the database."""

    cores: dict[str, float]
    memory: dict[str, float]
    disk: float


def need(lab: Lab) -> Need:
    """Return what a lab keeps busy."""
    cores = {role: (NODE_MS[role] * lab.nodes + JOB_MS[role] * lab.jobs) / 1000 for role in JOB_MS}
    cores["api"] += EVENT_MS * CHANGES_OF_A_JOB * lab.jobs * lab.watchers / 1000
    memory = {role: IDLE_MIB[role] + NODE_MIB[role] * lab.nodes + POD_MIB[role] * lab.live for role in IDLE_MIB}
    jobs_a_day = lab.jobs * SECONDS_OF_A_DAY
    kib = jobs_a_day * (DAY_KIB + RECORD_KIB * lab.days) + lab.kept * KEPT_KIB
    return Need(cores, memory, kib / (1 << 20))

"""Cost model: what a lab needs of cores, memory, disk and network, from costs that were measured. Pure.

`python -m benchmarks.model` prints the table of docs/how-to/size-and-retention.md, and `python -m benchmarks.model --nodes 1000
--jobs 10` what such a lab needs. The case `sizes` holds it against three sizes.

The more Jobs a second there are, the less each costs, as more is read, committed and sent at once. So a Job's cost was measured
at two rates, PACED and BURST, and `job_cost` goes from one to the other as a power of the rate: a straight line on paper
with logarithmic axes.
"""

import argparse
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

API, CONTROLLERS, POSTGRES = "api", "controllers", "postgres"
PROCESSES = (API, CONTROLLERS, POSTGRES)
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
RESERVE = 2.0  # cores to have for each that is busy: bursts, and what a restart has to catch up with
FULL = 1 / RESERVE  # of one core that an API process should be busy
MOST_CONNECTIONS, MOST_OF_ONE_ADDRESS = (
    16_384,
    8_192,
)  # that one API process accepts, and from one address: a balancer's
DATABASE_CONNECTIONS = 12  # of each process to Postgres, at most
HISTORY_HOURS, RECORD_DAYS, LOG_DAYS = 1, 30, 7  # defaults of JOBPLANE_HISTORY_HOURS, _RECORD_TTL_HOURS, _LOG_TTL_HOURS


class Cost(NamedTuple):
    """What one thing costs: of each process, or of what has no process in `each`. `case` and `figure`: what measured it."""

    unit: str
    case: str
    figure: str
    api: float = 0.0
    controllers: float = 0.0
    postgres: float = 0.0
    agent: float = 0.0
    each: float = 0.0

    def of(self, process: str) -> float:
        return float(getattr(self, process))


@dataclass(frozen=True, kw_only=True)
class Costs:
    """Milliseconds of CPU, MiB, KiB: all that the model is made from."""

    job_paced: Cost
    job_burst: Cost
    further_pod: Cost
    real_pod: Cost
    standing: Cost
    node: Cost
    delivery: Cost
    read: Cost
    further_api: Cost
    idle: Cost
    node_held: Cost
    pod_held: Cost
    busy_held: Cost
    job_heads: Cost
    job_events: Cost
    job_versions: Cost
    deleted_versions: Cost
    job_record: Cost
    deleted_record: Cost
    pod_share: Cost
    job_wal: Cost
    deleted_wal: Cost
    node_wal: Cost
    log: Cost
    job_network: Cost
    node_network: Cost
    delivered: Cost
    node_files: Cost


# Measured on two quiet cores of an AMD EPYC; `need` takes how much slower others are.
COSTS = Costs(
    job_paced=Cost("ms", "sizes", "CPU per Job, 100 nodes", api=3.8, controllers=4.0, postgres=4.8, agent=2.1),
    job_burst=Cost("ms", "many-jobs", "CPU per Job", api=0.72, controllers=1.00, postgres=0.41, agent=0.37),
    further_pod=Cost("ms", "huge-job", "CPU per pod", api=0.33, controllers=0.40, postgres=0.35, agent=0.36),
    real_pod=Cost("ms", "node", "CPU per pod", agent=4.86),
    standing=Cost(
        "ms/s", "sizes", "CPU a second per node, 100 nodes, less nodes", api=17.0, controllers=6.0, postgres=10.0
    ),
    node=Cost(
        "ms/s", "sizes", "CPU a second per node, 2,000 nodes", api=0.033, controllers=0.007, postgres=0.016, agent=0.05
    ),
    delivery=Cost("ms", "watch-delivery", "1000 watchers, server's CPU a delivery", api=0.028),
    read=Cost("ms", "two-apis", "CPU per GET", api=0.085),
    further_api=Cost("x", "two-apis", "CPU per POST, two APIs over one", api=0.04),
    idle=Cost(
        "MiB",
        "idle-memory",
        "RSS without Postgres; PSS of Postgres",
        api=121.0,
        controllers=59.0,
        postgres=42.0,
        agent=41.0,
    ),
    node_held=Cost(
        "KiB", "sizes", "memory idle, 2,000 nodes less 500 nodes", api=91.0, controllers=10.0, postgres=17.0
    ),
    pod_held=Cost("KiB", "schedule-large", "controllers' peak memory", controllers=4.0),
    busy_held=Cost(
        "MiB", "soak", "memory of each, at the end less at the start", api=120.0, controllers=20.0, postgres=66.0
    ),
    job_heads=Cost("KiB", "disk-parts", "of a finished Job: heads, less those of its events", each=2.2),
    job_events=Cost("KiB", "disk-parts", "heads of its events", each=4.8),
    job_versions=Cost("KiB", "disk-parts", "of a finished Job: versions", each=6.3),
    deleted_versions=Cost("KiB", "soak", "disk beyond what is kept: versions", each=10.7),
    job_record=Cost("KiB", "disk-parts", "of a finished Job: job_records, job_record_attempts", each=1.6),
    deleted_record=Cost("KiB", "soak", "disk beyond what is kept: job_records and what begins so", each=3.4),
    pod_share=Cost("share", "disk-parts", "of each further pod, over a finished Job", each=0.62),
    job_wal=Cost("KiB", "disk-parts", "WAL of a Job", each=21.7),
    deleted_wal=Cost("KiB", "soak", "WAL of a Job that is deleted", each=29.4),
    node_wal=Cost("B/s", "sizes", "WAL of a node, 2,000 nodes", each=100.0),
    log=Cost("KiB", "disk-parts", "log of a pod with one line", each=1.0),
    job_network=Cost("KiB", "sizes", "100 nodes: loopback for a Job", each=19.7),
    node_network=Cost("B/s", "sizes", "2,000 nodes: loopback for a Job: bytes a second for a node", each=150.0),
    delivered=Cost("KiB", "sizes", "100 nodes: loopback for a Job: bytes of a delivery", each=2.1),
    node_files=Cost("connections", "idle-memory", "connections to the API", each=5.0),
)
# The largest of each that a case has: fleet, many-jobs, huge-job, schedule-large, kept-jobs, watch-delivery.
MEASURED = {
    "nodes": 5_000,
    "jobs": 700.0,
    "pods_a_second": 1_300.0,
    "running": 50_000,
    "kept": 100_000,
    "watchers": 1_000,
}
PACED, BURST = 5.0, 700.0  # Jobs a second at which a Job's cost was measured
JOB_CHANGES, POD_CHANGES = 3, 4  # that watchers of Jobs and of pods are told of a Job and of each of its pods


class Lab(NamedTuple):
    """jobs: a second, while it is busy. hours: of a day for which it is. running: pods at one time. kept: ended Jobs that no
    TTL deletes. watchers: of all Jobs and pods. reads: GETs a second. runtime: "real", or "simulated", whose agents are one
    process. replicas: of the API; 0: as many as it takes.
    """

    nodes: int
    jobs: float = 1.0
    pods: int = 1
    hours: float = 24.0
    running: int = 0
    kept: int = 0
    watchers: int = 0
    reads: float = 0.0
    runtime: str = "real"
    replicas: int = 0

    @property
    def pods_a_second(self) -> float:
        return self.jobs * self.pods

    @property
    def jobs_a_day(self) -> float:
        return self.jobs * self.hours * 3600


class Need(NamedTuple):
    """cores: that are busy. memory: MiB, all replicas together. disk: GiB by what it is for; WAL is written, not kept.

    network: MB a second at the APIs. agent: cores busy on each node, or of the one process that simulates all. connections:
    of agents to one API.
    """

    cores: Mapping[str, float]
    memory: Mapping[str, float]
    agent: float
    disk: Mapping[str, float]
    wal_a_day: float
    network: float
    replicas: int
    connections: int
    job_kib: float
    wal_kib: float

    @property
    def disk_in_all(self) -> float:
        return sum(self.disk.values())


def need(lab: Lab, core: float = 1.0, costs: Costs = COSTS) -> Need:
    """Return what a lab keeps busy. core: CPU that a Job of `many-jobs` takes here, over that of the figures."""
    replicas = lab.replicas or api_replicas(lab, core, costs)
    cores = {process: busy_cores(lab, process, core, replicas, costs) for process in PROCESSES}
    share = 1 + (lab.pods - 1) * costs.pod_share.each
    return Need(
        cores=cores,
        memory={process: _memory(lab, process, replicas, costs) for process in PROCESSES},
        agent=_agent(lab, costs) * core,
        disk=_disk(lab, share, costs),
        wal_a_day=(lab.jobs_a_day * share * costs.deleted_wal.each * KIB + lab.nodes * costs.node_wal.each * 86_400)
        / GIB,
        network=_network(lab, costs),
        replicas=replicas,
        connections=math.ceil(lab.nodes * costs.node_files.each / replicas),
        job_kib=share
        * (costs.job_heads.each + costs.job_events.each + costs.job_versions.each + costs.job_record.each),
        wal_kib=share * costs.job_wal.each,
    )


def busy_cores(lab: Lab, process: str, core: float = 1.0, replicas: int = 1, costs: Costs = COSTS) -> float:
    """Return how many cores a kind of process keeps busy, all replicas together. One that cannot follow says over 1 each."""
    count = replicas if process == API else 1
    further = 1 + costs.further_api.api * (count - 1)
    work = load(lab, process, job_cost(lab.jobs / count, process, costs), core, costs)
    return work * further + core * (count - 1) * costs.standing.of(process) / 1000


def job_cost(rate: float, process: str, costs: Costs = COSTS) -> float:
    """Return the milliseconds of CPU that a Job of one pod takes, if a process has so many a second."""
    paced, burst = costs.job_paced.of(process), costs.job_burst.of(process)
    power = math.log(paced / burst) / math.log(BURST / PACED)
    return burst * (BURST / min(BURST, max(1.0, rate))) ** power


def load(lab: Lab, process: str, job: float, core: float = 1.0, costs: Costs = COSTS) -> float:
    """Return the seconds of CPU that a second of the lab takes, if a Job of one pod takes `job` milliseconds."""
    work = lab.jobs * (job + (lab.pods - 1) * costs.further_pod.of(process))
    rest = lab.nodes * costs.node.of(process) + lab.reads * costs.read.of(process)
    return core * (costs.standing.of(process) + work + rest + deliveries(lab) * costs.delivery.of(process)) / 1000


def deliveries(lab: Lab) -> float:
    """Return how many events a second go to watchers, half of which watch Jobs, the others pods."""
    return lab.watchers * lab.jobs * (JOB_CHANGES + POD_CHANGES * lab.pods) / 2


def api_replicas(lab: Lab, core: float = 1.0, costs: Costs = COSTS) -> int:
    """Return how many APIs it takes that none is more than half busy, or has more agents than it accepts.

    Several stand behind a balancer, whose connections all come from one address.
    """
    connections = lab.nodes * costs.node_files.each
    is_one_address = connections > MOST_CONNECTIONS or lab.runtime == "simulated"
    least = math.ceil(connections / (MOST_OF_ONE_ADDRESS if is_one_address else MOST_CONNECTIONS))
    enough = (
        count for count in itertools.count(max(1, least)) if busy_cores(lab, API, core, count, costs) <= count * FULL
    )
    return next(enough)


def most_pods_a_second(lab: Lab, process: str = CONTROLLERS, core: float = 1.0, costs: Costs = COSTS) -> float:
    """Return at how many pods a second one process of the kind is full, with the lab's nodes, watchers and pods a Job."""
    burst = costs.job_burst.of(process)
    idle = load(lab._replace(jobs=0.0), process, burst, core, costs)
    each = load(lab._replace(jobs=1.0), process, burst, core, costs) - idle
    return max(0.0, (1 - idle) / each) * lab.pods


def most_nodes(process: str = CONTROLLERS, core: float = 1.0, costs: Costs = COSTS) -> float:
    """Return at how many idle nodes one process of the kind is full."""
    return (1000 / core - costs.standing.of(process)) / costs.node.of(process)


def _memory(lab: Lab, process: str, replicas: int, costs: Costs) -> float:
    """MiB of all replicas, which share the nodes' connections."""
    count = replicas if process == API else 1
    held = lab.nodes * costs.node_held.of(process) + lab.running * costs.pod_held.of(process)
    each = costs.idle.of(process) + (costs.busy_held.of(process) if lab.jobs else 0.0)
    return each * count + held / KIB


def _agent(lab: Lab, costs: Costs) -> float:
    """Cores of one node's agent, or of the one that simulates all nodes."""
    if lab.runtime == "real":
        return (lab.pods_a_second / max(1, lab.nodes) * costs.real_pod.agent + costs.node.agent) / 1000
    work = lab.jobs * (costs.job_burst.agent + (lab.pods - 1) * costs.further_pod.agent)
    return (work + lab.nodes * costs.node.agent) / 1000


def _disk(lab: Lab, share: float, costs: Costs) -> dict[str, float]:
    """GiB, in the steady state: each Job is deleted, but for those that are kept."""
    a_day, an_hour = lab.jobs_a_day * share, lab.jobs * min(lab.hours, HISTORY_HOURS) * 3600 * share
    kib = {
        "kept Jobs": lab.kept * share * (costs.job_heads.each + costs.job_record.each),
        "events of an hour": an_hour * costs.job_events.each,
        "versions of an hour": an_hour * costs.deleted_versions.each,
        "records": a_day * RECORD_DAYS * costs.deleted_record.each,
        "logs": lab.jobs_a_day * lab.pods * LOG_DAYS * costs.log.each,
    }
    return {what: each * KIB / GIB for what, each in kib.items()}


def _network(lab: Lab, costs: Costs) -> float:
    work = lab.jobs * (1 + (lab.pods - 1) * costs.pod_share.each) * costs.job_network.each * KIB
    return (work + lab.nodes * costs.node_network.each + deliveries(lab) * costs.delivered.each * KIB) / 1e6


def extrapolated(lab: Lab) -> list[str]:
    """Return what of the lab is beyond what was measured."""
    return [what for what, most in MEASURED.items() if getattr(lab, what) > most]


# The table


LABS = (
    Lab(nodes=100, jobs=1, hours=8, running=1_000, kept=1_000, watchers=5, reads=5),
    Lab(nodes=1_000, jobs=10, hours=8, running=10_000, kept=10_000, watchers=20, reads=20),
    Lab(nodes=10_000, jobs=100, hours=8, running=100_000, kept=100_000, watchers=50, reads=100),
)
ONE_MACHINE = 2.0  # busy cores that one machine with twice as many should bear; more are spread over several


def table(labs: Sequence[Lab], core: float = 1.0) -> str:
    """Return what each lab needs, as a table of Markdown. What is beyond the sizes that were measured has a star."""
    needs = [need(lab, core) for lab in labs]
    rows = [
        ["", *(f"{lab.nodes:,} nodes" + ("*" if extrapolated(lab) else "") for lab in labs)],
        ["---"] * (1 + len(labs)),
    ]
    rows += [[name, *(say(lab) for lab in labs)] for name, say in _LABS.items()]
    rows += [[name, *(say(lab, each) for lab, each in zip(labs, needs, strict=True))] for name, say in _NEEDS.items()]
    return "\n".join("|" + "|".join(cell if cell == "---" else f" {cell} " for cell in row) + "|" for row in rows)


def _star(lab: Lab, what: str, text: str) -> str:
    return text + "*" if what in extrapolated(lab) else text


def _cores(value: float) -> str:
    return f"{value:.2f}" if value < 0.995 else f"{value:.1f}"


def _size(gib: float) -> str:
    return f"{gib * KIB:.0f} MiB" if gib < 0.95 else f"{gib:,.1f} GiB" if gib < 10 else f"{gib:,.0f} GiB"


def _process(process: str) -> Callable[[Lab, Need], str]:
    return lambda _, found: f"{_cores(found.cores[process])} cores, {_size(found.memory[process] / KIB)}"


def _disk_row(what: str) -> Callable[[Lab, Need], str]:
    return lambda _, found: _size(found.disk[what])


def machines(lab: Lab, found: Need) -> str:
    """Return what to buy: twice the cores and the memory that are in use, and the buffers of Postgres."""
    buffers = int(postgres_settings(lab, found)["shared_buffers"].removesuffix("MB"))
    memory = {**found.memory, POSTGRES: found.memory[POSTGRES] + buffers}
    if sum(found.cores.values()) <= ONE_MACHINE and found.replicas == 1:
        return f"one: {_machine(sum(found.cores.values()), sum(memory.values()))}"
    each = {API: found.replicas, CONTROLLERS: 2, POSTGRES: 1}
    parts = [
        f"{count} {process}: {_machine(found.cores[process] / shared, memory[process] / shared)}"
        for process, count in each.items()
        for shared in [count if process == API else 1]  # the second of the controllers stands by
    ]
    return "; ".join(parts)


def _machine(cores: float, memory: float) -> str:
    return f"{_power(max(2.0, cores * RESERVE))} cores, {_power(max(2.0, memory * RESERVE / KIB + 1))} GiB"


def _power(least: float) -> int:
    return int(1 << math.ceil(math.log2(least)))


def postgres_settings(lab: Lab, found: Need) -> dict[str, str]:
    """Return settings of Postgres: connections of all processes, what is read often in memory, WAL of ten busy minutes."""
    hot = (found.disk["kept Jobs"] + found.disk["events of an hour"]) * KIB
    wal = lab.jobs * 600 * COSTS.deleted_wal.each / KIB
    return {
        "max_connections": f"{max(60, 20 + DATABASE_CONNECTIONS * (found.replicas + 2))}",
        "shared_buffers": f"{max(64, min(8_192, _power(max(2.0, hot)) // 2))}MB",
        "max_wal_size": f"{max(512, _power(max(1.0, wal)))}MB",
    }


_LABS: Mapping[str, Callable[[Lab], str]] = {
    "Busy: Jobs a second, hours a day": lambda lab: (
        f"{lab.jobs:g} of {lab.pods} pod{'s'[: lab.pods > 1]}, {lab.hours:g} h"
    ),
    "Pods at one time": lambda lab: _star(lab, "running", f"{lab.running:,}"),
    "Ended Jobs that are kept": lambda lab: _star(lab, "kept", f"{lab.kept:,}"),
    "Watchers of all; GETs a second": lambda lab: f"{lab.watchers}; {lab.reads:g}",
}
_NEEDS: Mapping[str, Callable[[Lab, Need], str]] = {
    "**Machines**, without the nodes": machines,
    "API replicas": lambda _, found: f"{found.replicas}",
    "API, busy": _process(API),
    "Controllers, busy": _process(CONTROLLERS),
    "Postgres, busy": _process(POSTGRES),
    "Agent on each node": lambda _, found: f"{found.agent * 1000:.1f} ms of CPU a second, {COSTS.idle.agent:.0f} MiB",
    "Disk: Jobs that are kept": _disk_row("kept Jobs"),
    "Disk: events of an hour": _disk_row("events of an hour"),
    "Disk: versions of an hour": _disk_row("versions of an hour"),
    "Disk: records of 30 days": _disk_row("records"),
    "Disk: logs of a week": _disk_row("logs"),
    "**Disk** in all, without WAL": lambda _, found: _size(found.disk_in_all),
    "WAL written a day": lambda _, found: _size(found.wal_a_day),
    "Network of the APIs": lambda _, found: f"{found.network:.2f} MB/s",
    "Connections of agents to one API": lambda _, found: f"{found.connections:,}",
    **{
        f"`{name}`": lambda lab, found, name=name: postgres_settings(lab, found)[name]
        for name in ("max_connections", "shared_buffers", "max_wal_size")
    },
    "One controllers process is full at": lambda lab, _: (
        f"{_limit(lab, 1)} pods/s of one-pod Jobs, {_limit(lab, 100)} of larger"
    ),
}


def _limit(lab: Lab, pods: int) -> str:
    return f"{round(most_pods_a_second(lab._replace(pods=pods, watchers=0)), -1):,.0f}"


_HELP = {
    "nodes": "nodes",
    "jobs": "Jobs a second, while it is busy",
    "pods": "pods of a Job",
    "hours": "hours of a day for which it is busy",
    "running": "pods at one time",
    "kept": "ended Jobs that no TTL deletes",
    "watchers": "watches of all Jobs or pods",
    "reads": "GETs a second",
    "runtime": "real, or simulated: all agents are one process",
    "replicas": "APIs; 0: as many as it takes",
}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.model",
        description="What a lab needs, from costs that were measured. Without --nodes: three labs.",
    )
    for name, default in Lab(nodes=0)._asdict().items():
        choices = ["real", "simulated"] if name == "runtime" else None
        parser.add_argument(f"--{name}", type=type(default), default=default, choices=choices, help=_HELP[name])
    parser.add_argument(
        "--core", type=float, default=1.0, help="CPU per Job of `make bench ARGS='--only many-jobs'` here, over 2.5 ms"
    )
    return parser.parse_args()


def main() -> None:
    given = vars(_arguments())
    core = given.pop("core")
    lab = Lab(**given)
    print(table([lab] if lab.nodes else LABS, core))


if __name__ == "__main__":
    main()

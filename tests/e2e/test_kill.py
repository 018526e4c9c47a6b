"""kill -9 of any one process in the middle of a Job, twenty times: nothing is lost, nothing runs twice, nothing stays behind.

The ledger that the containers keep tells what really ran. JOBPLANE_KILLS=all is all of it; without it there are two Jobs, of half
as many pods, in which each kind of process is killed once.
"""

import os
import random
import secrets
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e import processes
from tests.e2e.cluster import Cluster, until
from tests.e2e.ledger import Ledger, completed, delete, is_exact, pods_of

WHOLE = "JOBPLANE_KILLS" in os.environ
PODS = 200 if WHOLE else 100
AT_ONCE = 20
DONE_SECONDS = 90
GONE_SECONDS = 30

# Every kind of process four times, in company that changes.
KILLS = (
    ("api", "controllers", "agent"),
    ("postgres", "up", "api"),
    ("controllers", "postgres", "agent"),
    ("up", "api", "controllers"),
    ("agent", "up", "postgres"),
    ("api", "agent", "up"),
    ("postgres", "controllers"),
)
FEW = (("api", "controllers"), ("agent", "up", "postgres"))


def test_the_plan_kills_twenty_times_and_each_process_at_least_three() -> None:
    times = Counter(name for names in KILLS for name in names)
    assert sum(times.values()) == 20
    assert set(times) == {"api", "controllers", "agent", "postgres", "up"}
    assert min(times.values()) >= 3
    assert {name for names in FEW for name in names} == set(times)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One of our own: it is not treated well."""
    with Cluster(tmp_path_factory.mktemp("killed") / "data") as running:
        yield running
    assert running.surprises() == ""


@pytest.mark.parametrize(
    ("number", "names"),
    [pytest.param(number, names, id="-".join(names)) for number, names in enumerate(KILLS if WHOLE else FEW)],
)
async def test_a_job_completes_exactly_once_despite_kills(
    cluster: Cluster, tmp_path: Path, number: int, names: tuple[str, ...]
) -> None:
    mode = ("Indexed", "NonIndexed")[number % 2]
    seed = secrets.randbits(32)
    print(f"seed {seed}: {mode}, kill {', '.join(names)}")
    ledger = Ledger(tmp_path / "ledger")
    job = ledger.job(f"killed-{number}", mode, pods=PODS, at_once=AT_ONCE)
    chance = random.Random(seed)
    finished = await completed(cluster.api(), job, lambda: _kill(cluster, ledger, names, chance), DONE_SECONDS)
    with cluster.client() as client:
        pods = pods_of(client, finished)
        assert is_exact(finished, pods, ledger)
        assert [pod["status"] for pod in pods if pod["status"]["phase"] == "Failed"] == []
        assert cluster.containers() == []
        delete(client, finished, GONE_SECONDS)
    until(lambda: not _kept(cluster), GONE_SECONDS, "the agent forgets the pods")


def _kill(cluster: Cluster, ledger: Ledger, names: tuple[str, ...], chance: random.Random) -> None:
    """Kill one after the other, each a moment after so many containers have begun."""
    moments = sorted(chance.sample(range(1, PODS - AT_ONCE), len(names)))
    for name, moment in zip(names, moments, strict=True):
        until(lambda moment=moment: ledger.begun() >= moment, DONE_SECONDS, f"{moment} pods")
        time.sleep(chance.uniform(0, 0.1))
        print(f"kill -9 {name} after {ledger.begun()} pods have begun")
        if name == "up":
            _kill_up(cluster)
        else:
            processes.kill(cluster.pid_of(name))


def _kill_up(cluster: Cluster) -> None:
    """And start it again at once, beside what is still ending. All that it started ends."""
    old = processes.children(cluster.pid)
    cluster.kill()
    cluster.start()
    until(
        lambda: {each.pid for each in old}.isdisjoint(each.pid for each in processes.living()),
        GONE_SECONDS,
        f"the children of up end: {old}",
    )


def _kept(cluster: Cluster) -> list[Path]:
    """What the agent remembers of containers. Folders are deleted while this is looked for."""
    return [Path(folder) for folder, _, names in os.walk(cluster.folder / "agent") if "spec.json" in names]

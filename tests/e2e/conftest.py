"""One Jobplane for all tests that leave it as it was; those that break things start their own."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

from tests.e2e.cluster import Cluster
from tests.e2e.kubectl import Kubectl, newest, of_every_version
from tests.e2e.parts import Parts
from tests.e2e.scheduling import Site

GATES = "GenericWorkload=true,TopologyAwareWorkloadScheduling=true"
HERE = Path(__file__).parent


# Files that would be the last to end, the longest first.
LONG = (
    *("test_pages.py", "test_compose.py", "test_commands.py", "test_clients.py", "test_engine_isolation.py"),
    *("test_jobs_e2e.py", "test_starts.py", "test_three_nodes.py", "test_systemd.py", "test_record_kills.py"),
    *("test_oidc.py", "test_engines.py", "test_encrypted_secrets.py", "test_wrong_settings.py", "test_node_alone.py"),
    *("test_kubectl_nodes.py", "test_database_away.py", "test_join.py", "test_rotation.py", "test_isolation.py"),
    *("test_node_kills.py", "test_pod_network.py", "test_kill.py", "test_job_verbs.py", "test_scheduler_kill.py"),
)
# Files that use the same Jobplane, which one process of the tests runs one after the other: each would start its own.
TOGETHER = {
    "unstaffed": (
        *("test_scheduling_queue.py", "test_scheduling_neighbours.py", "test_scheduling_scores.py"),
        *("test_scheduling_nodes.py", "test_scheduling_resources.py"),
    ),
    "simulated": ("test_preemption.py", "test_kubectl.py", "test_gangs.py", "test_queues.py", "test_examples.py"),
}
_USES = {file: fixture for fixture, files in TOGETHER.items() for file in files}


class _Distribution(LoadFileScheduling):
    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return _USES.get(Path(file).name, file)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling | None:
    return _Distribution(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    order = {name: place for place, name in enumerate(LONG)}
    items.sort(key=lambda item: order.get(item.path.name, len(order)))
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.e2e)
        for fixture in TOGETHER.keys() & {*getattr(item, "fixturenames", ())}:
            if _USES.get(item.path.name) != fixture:
                raise pytest.UsageError(f"{item.path.name} uses the fixture {fixture}: name it in TOGETHER")


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Runs containers as processes."""
    with Cluster(tmp_path_factory.mktemp("process") / "data") as running:
        yield running
    assert running.surprises() == ""


@pytest.fixture(scope="session")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Pretends twenty nodes."""
    folder = tmp_path_factory.mktemp("simulated") / "data"
    with Cluster(folder, "--runtime", "simulated", "--nodes", "20", "--feature-gates", GATES, nodes=20) as running:
        yield running
    assert running.surprises() == ""


@pytest.fixture(scope="session")
def kubectls(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Kubectl]]:
    """Every version found, each with a home and a namespace of its own, so that they do not see each other's objects."""
    with of_every_version(cluster, tmp_path_factory) as made:
        yield made


@pytest.fixture(scope="session")
def unstaffed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Parts]:
    """Has no agents: what nodes it has is up to the test, and they are believed to be well."""
    folder = tmp_path_factory.mktemp("unstaffed") / "data"
    with Parts(folder, nodes=0, JOBPLANE_NODE_GRACE_SECONDS="86400") as running:
        yield running
    assert running.surprises() == ""


@pytest.fixture(scope="session")
def newest_kubectl(unstaffed: Parts, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    made = Kubectl.at(newest(), unstaffed, tmp_path_factory.mktemp("home"))
    yield made
    made.api.close()


@pytest.fixture
def site(newest_kubectl: Kubectl, tmp_path: Path) -> Iterator[Site]:
    """Empty, for one test at a time."""
    made = Site(newest_kubectl.apart(tmp_path.name.removeprefix("test_").replace("_", "-").lower()))
    yield made
    made.clear()

"""One Jobplane for all tests that leave it as it was; those that break things start their own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.cluster import Cluster
from tests.e2e.kubectl import Kubectl, newest, of_every_version
from tests.e2e.parts import Parts
from tests.e2e.scheduling import Site

HERE = Path(__file__).parent


# Files that would be the last to end, the longest first.
LONG = (
    *("test_pages.py", "test_compose.py", "test_commands.py", "test_clients.py", "test_credential_renewal.py"),
    *("test_node_kills.py", "test_oidc.py", "test_engines.py", "test_encrypted_secrets.py", "test_database_away.py"),
    *("test_kill.py", "test_engine_isolation.py", "test_wrong_settings.py", "test_jobs_e2e.py", "test_systemd.py"),
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    order = {name: place for place, name in enumerate(LONG)}
    items.sort(key=lambda item: order.get(item.path.name, len(order)))
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.e2e)


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
    with Cluster(folder, "--runtime", "simulated", "--nodes", "20", nodes=20) as running:
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

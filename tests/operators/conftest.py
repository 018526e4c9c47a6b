"""A Jobplane for each file of tests: an operator's definitions and webhooks are for its file alone."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.cluster import Cluster
from tests.operators.objects import Objects

HERE = Path(__file__).parent
SWITCH = "JOBPLANE_OPERATORS"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(
                pytest.mark.skipif(SWITCH not in os.environ, reason=f"only with {SWITCH}=1: builds operators")
            )
            item.add_marker(pytest.mark.timeout(3900))  # the first time, a build


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Runs containers as processes."""
    with Cluster(tmp_path_factory.mktemp("operators") / "data") as running:
        yield running
    assert running.surprises() == ""


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Pretends two nodes."""
    folder = tmp_path_factory.mktemp("simulated") / "data"
    with Cluster(folder, "--runtime", "simulated", "--nodes", "2", nodes=2) as running:
        yield running
    assert running.surprises() == ""


@pytest.fixture
def objects(cluster: Cluster) -> Iterator[Objects]:
    with cluster.client() as client:
        yield Objects(client)

"""JobSet as it is installed, but for its Deployment: in-cluster configuration, its own rights, certificates and Service."""

from collections.abc import Iterator

import pytest

from tests.e2e.cluster import Cluster
from tests.operators import jobset
from tests.operators.objects import Objects, condition


@pytest.fixture(scope="module")
def manager(cluster: Cluster) -> Iterator[None]:
    with jobset.in_a_pod(cluster):
        yield


def test_a_set_ends(manager: None, objects: Objects) -> None:
    objects.create(jobset.SETS, jobset.set_of("two", {"leader": "echo leads", "workers": "echo works"}))

    objects.until(jobset.SETS, "two", lambda found: condition(found, "Completed"))
    [account] = {each["metadata"]["managedFields"][0]["manager"] for each in objects.list("batch/v1/jobs")}
    assert account.startswith("jobset")

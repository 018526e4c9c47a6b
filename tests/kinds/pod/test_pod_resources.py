"""What a pod needs, and its quality of service."""

import pytest

from app.kinds.pod.pod_resources import qos_class, requests
from tests.kinds.pods import a_pod, made


def of(limits=None, name="main", **requested):
    return {"name": name, "image": "a", "resources": {"limits": limits or {}, "requests": requested}}


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        pytest.param({"containers": [of(), of()]}, {}, id="nothing said"),
        pytest.param(
            {"containers": [of(cpu="100m", memory="1Ki"), of(cpu=1)]}, {"cpu": 1100, "memory": 1024}, id="a sum"
        ),
        pytest.param({"containers": [of({"cpu": "2"})]}, {"cpu": 2000}, id="limits stand in"),
        pytest.param(
            {"containers": [of(cpu=1)], "initContainers": [of(cpu=2, memory="5"), of(cpu=3)]},
            {"cpu": 3000, "memory": 5},
            id="the neediest step of initialisation",
        ),
        pytest.param(
            {"containers": [of(cpu=1)], "initContainers": [of(cpu=2) | {"restartPolicy": "Always"}, of(cpu=2)]},
            {"cpu": 4000},
            id="sidecars run beside it",
        ),
        pytest.param({"containers": [of(cpu=1)], "overhead": {"cpu": "0.5"}}, {"cpu": 1500}, id="overhead"),
        pytest.param({"containers": [of(cpu="lots")]}, {"cpu": 0}, id="what does not parse"),
    ],
)
def test_requests(parts, expected):
    assert requests(a_pod(**parts)) == expected


@pytest.mark.parametrize(
    ("containers", "expected"),
    [
        pytest.param([of()], "BestEffort", id="nothing said"),
        pytest.param([of({"cpu": "0"})], "BestEffort", id="zero said"),
        pytest.param([of({"cpu": "1", "memory": "1Gi"})], "Guaranteed", id="limited to what is requested"),
        pytest.param([of({"cpu": "1"})], "Burstable", id="memory without limit"),
        pytest.param([of({"cpu": "1", "memory": "1Gi"}, cpu="0.5")], "Burstable", id="more allowed than requested"),
        pytest.param([of({"cpu": "1", "memory": "1"}), of(name="b")], "Burstable", id="one container without limits"),
    ],
)
def test_quality_of_service(containers, expected):
    assert qos_class(made(containers=containers).spec) == expected

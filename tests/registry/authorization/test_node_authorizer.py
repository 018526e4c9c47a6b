"""Agents read what their own pods need, and nothing else."""

import msgspec

from app.kinds.pod.pod import Pod
from app.registry.authorization.node_authorizer import references


def pod(spec: dict) -> Pod:
    return msgspec.convert({"spec": spec}, Pod)


def test_everything_that_a_pod_can_take_from_config_maps_and_secrets_counts() -> None:
    container = {
        "name": "c",
        "env": [
            {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "cm1", "key": "k"}}},
            {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s1", "key": "k"}}},
            {"name": "C", "value": "plain"},
        ],
        "envFrom": [{"configMapRef": {"name": "cm2"}}, {"secretRef": {"name": "s2"}}],
    }
    volumes = [
        {"name": "v1", "configMap": {"name": "cm3"}},
        {"name": "v2", "secret": {"secretName": "s3"}},
        {"name": "v3", "projected": {"sources": [{"configMap": {"name": "cm4"}}, {"secret": {"name": "s4"}}]}},
        {"name": "v4", "emptyDir": {}},
    ]

    found = set(references(pod({"containers": [container], "initContainers": [], "volumes": volumes})))

    assert found == {
        (kind, f"{short}{n}") for kind, short in (("configmaps", "cm"), ("secrets", "s")) for n in range(1, 5)
    }


def test_a_pod_that_refers_to_nothing_gives_its_node_nothing() -> None:
    assert set(references(pod({"containers": [{"name": "c"}]}))) == set()

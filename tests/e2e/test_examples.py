"""The examples on several nodes: what shares a folder or a loopback address with others runs where they do."""

from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.e2e.cluster import Cluster, until

EXAMPLES = Path(__file__).parents[2] / "examples"
COLLECTIONS = {
    "Job": "/apis/batch/v1/namespaces/{}/jobs",
    "Pod": "/api/v1/namespaces/{}/pods",
    "Service": "/api/v1/namespaces/{}/services",
}
RUNS_ON = {"jobplane.dev/simulate": "seconds=3600"}


def apply(client: httpx.Client, namespace: str, document: Any) -> None:
    """Its pods, of whichever kind it is, run until they are deleted."""
    pod = document["spec"].get("template", document)
    pod.setdefault("metadata", {})["annotations"] = RUNS_ON
    answer = client.post(COLLECTIONS[document["kind"]].format(namespace), json=document)
    assert answer.status_code == 201, answer.text


@pytest.mark.parametrize(
    ("name", "manifests", "pods"),
    [
        ("one-item-each", ("redis/server", "redis/fill", "redis/one-item-each"), 4),
        ("many-items-each", ("redis/server", "redis/fill", "redis/work-queue"), 4),
        ("messages", ("rabbitmq/server", "rabbitmq/fill", "rabbitmq/one-item-each"), 4),
        ("files", ("work-queue",), 3),
    ],
)
def test_what_works_on_one_queue_runs_on_one_node(
    simulated: Cluster, name: str, manifests: tuple[str, ...], pods: int
) -> None:
    with simulated.client() as client:
        client.post("/api/v1/namespaces", json={"metadata": {"name": name}}).raise_for_status()
        for manifest in manifests:
            for document in yaml.safe_load_all((EXAMPLES / f"{manifest}.yaml").read_text()):
                apply(client, name, document)

        def bound() -> list[str]:
            items = client.get(COLLECTIONS["Pod"].format(name)).json()["items"]
            return [each["spec"]["nodeName"] for each in items if each["spec"].get("nodeName")]

        until(lambda: len(bound()) == pods, 60, f"all {pods} pods have a node")
        assert len(set(bound())) == 1
        client.delete(f"/api/v1/namespaces/{name}").raise_for_status()

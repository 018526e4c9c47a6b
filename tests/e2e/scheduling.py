"""Nodes that are nothing but objects, and pods for them: where the scheduler puts them and why not, as kubectl shows it.

Without agents a node is as large as it says, and a pod stays as it was bound: so a test knows all that matters.
"""

import re
from collections.abc import Mapping
from typing import Any

from app.scheduler.fit_hints import without_hint
from tests.e2e.cluster import until
from tests.e2e.kubectl import SECONDS, Kubectl, words

GATED = "SchedulingGated"
MESSAGE = "jsonpath={.status.conditions[?(@.type=='PodScheduled')].message}"
_NODES, _PODS = "/api/v1/nodes", "/api/v1/namespaces/{}/pods"


def a_node(name: str, *taints: Mapping[str, str], spec: Mapping[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """One that is ready. `labels`, `images`; anything else is how much it has of a resource."""
    labels, images = {"kubernetes.io/hostname": name, **more.pop("labels", {})}, more.pop("images", [])
    has = {"cpu": "4", "memory": "8Gi", "pods": "110"} | more.pop("has", {}) | more
    ready = {"type": "Ready", "status": "True", "reason": "AgentReady"}
    status = {"capacity": has, "allocatable": has, "conditions": [ready], "images": images}
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": [*taints], **(spec or {})},
        "status": status,
    }


def taint(text: str) -> dict[str, str]:
    """`key=value:effect`."""
    about, _, effect = text.partition(":")
    key, _, value = about.partition("=")
    return {"key": key, "value": value, "effect": effect}


def a_pod(name: str, labels: Mapping[str, str] | None = None, *, requests: Any = None, **spec: Any) -> dict[str, Any]:
    """Of one container; `container` adds to that, anything else to the spec."""
    resources = {"requests": dict(requests), "limits": _limits(requests)} if requests else {}
    container = {"name": "main", "image": "busybox", "resources": resources, **spec.pop("container", {})}
    return {"metadata": {"name": name, "labels": dict(labels or {})}, "spec": {"containers": [container], **spec}}


def _limits(requests: Mapping[str, str]) -> dict[str, str]:
    """Of what may not be overcommitted."""
    return {name: amount for name, amount in requests.items() if "/" in name or name.startswith("hugepages-")}


class Site:
    """All nodes that there are, for one test; its pods are in a namespace of their own."""

    def __init__(self, kubectl: Kubectl) -> None:
        self.kubectl = kubectl

    def nodes(self, *nodes: Mapping[str, Any]) -> None:
        for each in nodes:
            self.kubectl.api.post(_NODES, json=each).raise_for_status()

    def pods(self, *pods: Mapping[str, Any], namespace: str = "") -> None:
        for each in pods:
            path = _PODS.format(namespace or self.kubectl.namespace)
            answer = self.kubectl.api.post(path, json=each)
            assert answer.is_success, answer.text

    def try_(self, *pods: Mapping[str, Any]) -> dict[str, str]:
        """Where these come, one after the other, or why they do not come anywhere."""
        for each in pods:
            self.pods(each)
            self.settled(each["metadata"]["name"])
        return self.outcome(*(each["metadata"]["name"] for each in pods))

    def outcome(self, *names: str) -> dict[str, str]:
        """The node of each of these pods, or why it has none without what is said of preemption; `describe` says the same."""
        pods = self.settled(*names)
        told, found = self.described(*names), {}
        for name, pod in pods.items():
            node, why, about = pod["spec"].get("nodeName"), _scheduled(pod).get("message", ""), words(told[name])
            if node:
                assert f"Node: {node}/\n" in about
                assert f"Successfully assigned {self.kubectl.namespace}/{name} to {node}" in about
            else:
                assert "Node: <none>\n" in about
                assert re.search(rf"Warning FailedScheduling .*default-scheduler {re.escape(why)}\n", f"{about}\n")
            found[name] = node or without_hint(why).partition(" preemption: ")[0]
        return found

    def settled(self, *names: str) -> dict[str, dict[str, Any]]:
        """The pods, once it is known of each where it goes, or that it goes nowhere."""

        def found() -> dict[str, dict[str, Any]] | None:
            pods = {name: self.pod(name) for name in names}
            return pods if all(_scheduled(pod).get("reason") != GATED for pod in pods.values()) else None

        settled: dict[str, dict[str, Any]] = until(found, SECONDS, f"{names} are decided")
        return settled

    def why(self, name: str) -> str:
        """All that a pod is told."""
        self.settled(name)
        return without_hint(self.kubectl("get", "pod", name, "-o", MESSAGE))

    def pod(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.kubectl.stored("pod", name)
        return found

    def described(self, *names: str) -> dict[str, str]:
        """What `describe` says, pod by pod."""
        parts = self.kubectl("describe", "pods", *names).split("\n\n\nName:")
        return dict(zip(names, parts, strict=True))

    def comes(self, name: str, node: str, seconds: float = SECONDS) -> None:
        """Wait until the pod is there."""
        until(lambda: self.pod(name)["spec"].get("nodeName"), seconds, f"{name} has its place")
        assert self.pod(name)["spec"]["nodeName"] == node

    def remove(self, name: str) -> None:
        path = f"{_PODS.format(self.kubectl.namespace)}/{name}"
        self.kubectl.api.request("DELETE", path, json={"gracePeriodSeconds": 0}).raise_for_status()

    def clear(self) -> None:
        """Leave no pod and no node."""
        api = self.kubectl.api
        for pod in api.get("/api/v1/pods").json()["items"]:
            path = _PODS.format(pod["metadata"]["namespace"])
            api.request("DELETE", f"{path}/{pod['metadata']['name']}", json={"gracePeriodSeconds": 0})
        for node in api.get(_NODES).json()["items"]:
            api.delete(f"{_NODES}/{node['metadata']['name']}")


def _scheduled(pod: Mapping[str, Any]) -> dict[str, str]:
    """The condition; before there is one a pod counts as gated."""
    conditions = pod["status"].get("conditions", [])
    return next((each for each in conditions if each["type"] == "PodScheduled"), {"reason": GATED})

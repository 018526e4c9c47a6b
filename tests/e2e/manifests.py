"""Jobs for the tests, as a user would write them down."""

from typing import Any


def a_job(name: str, script: str, **spec: Any) -> dict[str, Any]:
    """A Job of one container that runs a shell script.

    `pod` adds to the pod's spec, `env` to the container's variables, `labels` to the Job's.
    """
    pod, env, labels = spec.pop("pod", {}), spec.pop("env", []), spec.pop("labels", {})
    container = {**a_container("main", script), **({"env": env} if env else {})}
    template = {
        "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container], **pod}
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, **({"labels": labels} if labels else {})},
        "spec": {"template": template, **spec},
    }


def a_container(name: str, script: str) -> dict[str, Any]:
    return {"name": name, "image": "busybox", "command": ["sh", "-c", script]}


def a_configmap(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def from_field(name: str, path: str) -> dict[str, Any]:
    """A variable that tells a container something about its pod."""
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


FOREVER = "echo ready; exec sleep 1000"

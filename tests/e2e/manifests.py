"""Jobs for the tests, as a user would write them down."""

from typing import Any


def a_job(name: str, script: str, **spec: Any) -> dict[str, Any]:
    """A Job of one container that runs a shell script. `pod` adds to the pod's spec, `env` to the container's variables."""
    pod, env = spec.pop("pod", {}), spec.pop("env", [])
    container = {"name": "main", "image": "busybox", "command": ["sh", "-c", script], **({"env": env} if env else {})}
    template = {
        "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container], **pod}
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"template": template, **spec},
    }


def from_field(name: str, path: str) -> dict[str, Any]:
    """A variable that tells a container something about its pod."""
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


FOREVER = "echo ready; exec sleep 1000"

"""Objects for the page to show, made through the API."""

import json
from typing import Any

import httpx


def a_job(name: str, *, seconds: float = 3600, exit_code: int = 0, **spec: Any) -> dict[str, Any]:
    """A Job whose simulated pods run so long, and end with this exit code."""
    container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "250m", "memory": "64Mi"}}}
    simulate = json.dumps({"seconds": seconds, "exitCode": exit_code})
    template = {
        "metadata": {"annotations": {"jobplane.dev/simulate": simulate}},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": {"team": "vision"}},
        "spec": {"backoffLimit": 0, "template": template, **spec},
    }


def create_job(api: httpx.Client, namespace: str, name: str, **options: Any) -> None:
    path = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    api.post(path, json=a_job(name, **options)).raise_for_status()


def create_cronjob(api: httpx.Client, namespace: str, name: str, schedule: str) -> None:
    template = {"spec": a_job(name)["spec"]}
    body = {"metadata": {"name": name}, "spec": {"schedule": schedule, "jobTemplate": template}}
    api.post(f"/apis/batch/v1/namespaces/{namespace}/cronjobs", json=body).raise_for_status()


def create_queue(api: httpx.Client, namespace: str, **spec: Any) -> None:
    body = {"metadata": {"name": "default"}, "spec": spec}
    api.post(f"/apis/jobplane.dev/v1/namespaces/{namespace}/localqueues", json=body).raise_for_status()

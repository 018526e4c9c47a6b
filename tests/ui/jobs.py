"""Jobs for tests of the page: made by the API, and waited for by its watch."""

from typing import Any

import httpx

SIMULATE = "jobplane.dev/simulate"


def make_job(
    api: httpx.Client,
    namespace: str,
    name: str,
    simulate: str = "",
    requests: Any = None,
    policy: str = "Never",
    image: str = "tool",
    **spec: Any,
) -> Any:
    """Create a Job whose pods do what the simulated runtime is told; returns it."""
    container = {"name": "main", "image": image, "resources": {"requests": requests or {"cpu": "10m"}}}
    template = {
        "metadata": {"annotations": {SIMULATE: simulate} if simulate else {}},
        "spec": {"restartPolicy": policy, "containers": [container]},
    }
    manifest = {"metadata": {"name": name}, "spec": {"template": template, **spec}}
    answer = api.post(f"/apis/batch/v1/namespaces/{namespace}/jobs", json=manifest)
    answer.raise_for_status()
    return answer.json()


def await_job(api: httpx.Client, namespace: str, name: str, *types: str) -> Any:
    """The Job as soon as it has a condition of one of these types."""
    path = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    query = {"watch": "1", "fieldSelector": f"metadata.name={name}", "timeoutSeconds": "60"}
    with api.stream("GET", path, params=query, timeout=90) as watch:
        for line in watch.iter_lines():
            job = httpx.Response(200, content=line).json()["object"]
            conditions = job.get("status", {}).get("conditions", [])
            if any(each["type"] in types and each["status"] == "True" for each in conditions):
                return job
    raise AssertionError(f"{name} is not {types} within a minute")

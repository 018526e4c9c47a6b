"""A namespace of a running Jobplane, as the tests see it: through the API only."""

from collections.abc import Callable
from typing import Any

import httpx

from tests.e2e.cluster import until

Object = dict[str, Any]
MERGE, STRATEGIC, JSON_PATCH = (
    f"application/{each}+json" for each in ("merge-patch", "strategic-merge-patch", "json-patch")
)
SECONDS = 60  # how long to wait for anything at most: the longest back-off here is 40


class Namespace:
    def __init__(self, client: httpx.Client, name: str) -> None:
        self.client = client
        self.name = name
        self.jobs = f"/apis/batch/v1/namespaces/{name}/jobs"
        client.post("/api/v1/namespaces", json={"metadata": {"name": name}}).raise_for_status()

    def path(self, pod: str) -> str:
        return f"/api/v1/namespaces/{self.name}/pods/{pod}"

    def create(self, job: Object) -> Object:
        made: Object = self.client.post(self.jobs, json=job).raise_for_status().json()
        return made

    def job(self, name: str) -> Object:
        found: Object = self.client.get(f"{self.jobs}/{name}").raise_for_status().json()
        return found

    def patch(self, name: str, change: Any, kind: str = MERGE) -> Object:
        answer = self.client.patch(f"{self.jobs}/{name}", json=change, headers={"Content-Type": kind})
        changed: Object = answer.raise_for_status().json()
        return changed

    def delete(self, name: str, policy: str = "Background") -> None:
        self.client.request("DELETE", f"{self.jobs}/{name}", json={"propagationPolicy": policy}).raise_for_status()

    def pods(self, job: str, phase: str = "") -> list[Object]:
        """Those with the Job's label, whosever they are; if a phase is given, only those that are in it."""
        labels = {"labelSelector": f"batch.kubernetes.io/job-name={job}"}
        found = self.client.get(self.path("").rstrip("/"), params=labels).raise_for_status().json()["items"]
        return [pod for pod in found if not phase or pod["status"]["phase"] == phase]

    def running(self, job: str, count: int) -> list[Object]:
        """The pods once so many run."""
        until(lambda: len(self.pods(job, "Running")) == count, SECONDS, f"{count} pods of {job} run")
        return self.pods(job, "Running")

    def becomes(self, name: str, claim: Callable[[Object], bool]) -> Object:
        """The Job as it is once the claim holds."""
        seen: list[Object] = []

        def holds() -> bool:
            seen[:] = [self.job(name)]
            return claim(seen[0])

        try:
            until(holds, SECONDS, f"{name} is so")
        except AssertionError as error:
            raise AssertionError(f"{error}: {seen[0].get('status')}") from None
        return seen[0]

    def status_is(self, name: str, **counts: Any) -> Object:
        """The Job once its status says so; what is not there is 0."""
        return self.becomes(
            name, lambda job: all(job["status"].get(field, 0) == value for field, value in counts.items())
        )

    def ended(self, name: str, how: str) -> Object:
        """The Job once it has ended, which must be so: Complete or Failed."""
        job = self.becomes(name, lambda job: bool({"Complete", "Failed"}.intersection(conditions(job))))
        assert how in conditions(job), job["status"]
        assert counts(job) == (0, 0, 0), job["status"]
        return job


def conditions(job: Object) -> list[str]:
    """The types of those that are true, in order."""
    return [each["type"] for each in job["status"].get("conditions", []) if each["status"] == "True"]


def reasons(job: Object) -> list[tuple[str, str]]:
    """Of Kubernetes' conditions: Finished is ours."""
    conditions = job["status"].get("conditions", [])
    return [(each["type"], each["reason"]) for each in conditions if each["type"] != "Finished"]


def counts(job: Object) -> tuple[int, int, int]:
    """Active, ready, terminating: all 0 once it has ended."""
    status = job["status"]
    return status.get("active", 0), status.get("ready", 0), status.get("terminating", 0)


def indexes(pods: list[Object], where: str = "annotations") -> list[int]:
    return sorted(int(pod["metadata"][where]["batch.kubernetes.io/job-completion-index"]) for pod in pods)

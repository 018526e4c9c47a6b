"""JobSet: sets of Jobs, with its webhooks called by URL."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.cluster import Cluster
from tests.operators.jobset import SETS, SYSTEM, by_urls, set_of
from tests.operators.manager import Manager
from tests.operators.objects import Objects, condition


@pytest.fixture(scope="module")
def jobset(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Manager]:
    with by_urls(cluster, tmp_path_factory.mktemp("jobset")) as manager:
        yield manager


def test_a_set_of_two_jobs_ends(jobset: Manager, objects: Objects) -> None:
    made = objects.create(SETS, set_of("two", {"leader": "echo leads", "workers": "echo works"}))

    assert made["spec"]["replicatedJobs"][0]["template"]["spec"]["completionMode"] == "Indexed"  # of the webhook
    done = objects.until(SETS, "two", lambda found: condition(found, "Completed"))
    assert done["status"]["terminalState"] == "Completed"
    jobs = objects.list("batch/v1/jobs", "jobset.sigs.k8s.io/jobset-name=two")
    assert sorted(each["metadata"]["name"] for each in jobs) == ["two-leader-0", "two-workers-0"]
    assert all(each["metadata"]["ownerReferences"][0]["kind"] == "JobSet" for each in jobs)
    assert objects.get("v1/services", "two")["spec"]["clusterIP"] == "None"
    assert objects.get("coordination.k8s.io/v1/leases", "jobset", SYSTEM)["spec"]["holderIdentity"]


def test_a_set_starts_again_when_a_job_has_failed(jobset: Manager, objects: Objects, tmp_path: Path) -> None:
    tried = tmp_path / "tried"
    tmp_path.chmod(0o777)
    command = f"test -e {tried} || {{ touch {tried}; exit 1; }}"
    objects.create(SETS, set_of("again", {"main": command}, failurePolicy={"maxRestarts": 1}))

    done = objects.until(SETS, "again", lambda found: condition(found, "Completed"))
    assert done["status"]["restarts"] == 1
    objects.create(SETS, set_of("never", {"main": "exit 1"}, failurePolicy={"maxRestarts": 1}))
    failed = objects.until(SETS, "never", lambda found: condition(found, "Failed"))
    assert failed["status"]["restarts"] == 1


def test_a_set_is_done_by_its_success_policy(jobset: Manager, objects: Objects) -> None:
    policy = {"operator": "All", "targetReplicatedJobs": ["driver"]}
    objects.create(SETS, set_of("policy", {"driver": "true", "workers": "sleep 600"}, successPolicy=policy))

    objects.until(SETS, "policy", lambda found: condition(found, "Completed"))
    objects.delete(SETS, "policy")


def test_the_webhook_refuses_what_jobset_does_not_allow(jobset: Manager, objects: Objects) -> None:
    wrong = set_of("wrong", {"main": "true"}, successPolicy={"operator": "All", "targetReplicatedJobs": ["nobody"]})
    refused = objects.client.post(objects.path(SETS), json=wrong)

    assert refused.status_code in (403, 422)
    assert 'admission webhook "vjobset.kb.io" denied the request' in refused.json()["message"]

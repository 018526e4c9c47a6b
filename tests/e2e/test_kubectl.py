"""What a newcomer types first, with every kubectl found; the other `test_kubectl_*` go through its commands one by one."""

import re
from contextlib import closing
from pathlib import Path

import yaml

from tests.e2e.cluster import Cluster, until
from tests.e2e.kubectl import COMPLETE, SECONDS, TIMEOUT, Kubectl, newest, on_every_version
from tests.e2e.manifests import a_job


@on_every_version
def test_a_job_from_apply_to_its_log_and_its_end(kubectl: Kubectl) -> None:
    file = kubectl.file("pi.yaml", yaml.safe_dump(a_job("pi-first", "echo 3.14159; echo done", backoffLimit=4)))
    assert kubectl("apply", "-f", file) == "job.batch/pi-first created\n"
    assert kubectl("wait", COMPLETE, "job/pi-first", TIMEOUT) == "job.batch/pi-first condition met\n"
    assert re.search(r"^pi-first +Complete +1/1 +\d+s +\d+s$", kubectl("get", "jobs"), re.MULTILINE)
    assert re.search(r"^pi-first-\w{5} +0/1 +Completed +0 +\d+s$", kubectl("get", "pods"), re.MULTILINE)
    assert kubectl("logs", "job/pi-first") == "3.14159\ndone\n"
    assert "1 Succeeded / 0 Failed" in kubectl("describe", "job", "pi-first")
    assert re.search(r"Normal +Completed +job/pi-first +Job completed", kubectl("get", "events"))
    assert kubectl("apply", "-f", file) == "job.batch/pi-first unchanged\n"
    assert kubectl("delete", "-f", file) == 'job.batch "pi-first" deleted\n'
    gone = ("get", "pods", "-l", "job-name=pi-first")
    until(lambda: kubectl(*gone) == kubectl.none(), SECONDS, "the pods go with their Job")


def test_a_thousand_pretended_pods_complete_on_twenty_nodes(
    kubectls: list[Kubectl], simulated: Cluster, tmp_path: Path
) -> None:
    kubectl = Kubectl.at(newest(), simulated, tmp_path)
    with closing(kubectl.api):
        kubectl("create", "namespace", kubectl.namespace)
        assert kubectl("get", "nodes", "--no-headers").count(" Ready ") == 20
        kubectl.run_to_its_end(a_job("many", "true", completions=1000, parallelism=200, completionMode="Indexed"))
        status = kubectl.stored("job", "many")["status"]
    assert (status["succeeded"], status["completedIndexes"]) == (1000, "0-999")

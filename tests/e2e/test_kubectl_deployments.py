"""`kubectl create deployment`, `rollout`, `scale` and `delete` of one, with real pods. `make test-long` runs it."""

import os

import pytest

from tests.e2e.kubectl import Kubectl, on_every_version

pytestmark = pytest.mark.skipif(
    os.environ.get("JOBPLANE_KUBECTLS") != "all", reason="JOBPLANE_KUBECTLS=all, as in make test-long"
)
WEB, PATIENCE = "deployment/web", "--timeout=120s"


@on_every_version
def test_a_deployment_from_its_first_pod_to_its_last(kubectl: Kubectl) -> None:
    own = kubectl.apart("servers")
    own("create", "deployment", "web", "--image=one", "--replicas=2", "--", "sleep", "3600")
    assert "successfully rolled out" in own("rollout", "status", WEB, PATIENCE)
    assert own("get", "deploy", "web", "--no-headers").split()[:4] == ["web", "2/2", "2", "2"]

    (pod, *_) = own("get", "pods", "-o", "name").split()
    own("delete", pod, "--grace-period=1")
    own("wait", "--for=jsonpath={.status.availableReplicas}=2", WEB, PATIENCE)

    own("patch", WEB, "-p", '{"spec":{"template":{"spec":{"terminationGracePeriodSeconds":1}}}}')
    own("rollout", "status", WEB, PATIENCE)
    own("set", "image", WEB, "one=two")
    own("rollout", "status", WEB, PATIENCE)
    own("rollout", "undo", WEB)
    own("rollout", "status", WEB, PATIENCE)
    assert own("get", WEB, "-o", "jsonpath={.spec.template.spec.containers[0].image}") == "one"
    assert [line.split()[0] for line in own("rollout", "history", WEB).splitlines()[2:] if line] == ["1", "3", "4"]

    own("scale", WEB, "--replicas=1")
    own("rollout", "status", WEB, PATIENCE)
    assert "NewReplicaSet:   web-" in own("describe", WEB)
    own("delete", WEB, "--cascade=foreground", PATIENCE)
    assert own("get", "deploy,rs", "-o", "name") == ""

"""Deployments and ReplicaSets: defaults, what is refused in Kubernetes' words, the rows of `kubectl get`."""

from typing import Any

import pytest
from msgspec.structs import replace

from app.kinds.apps.deployment import KIND, Deployment, DeploymentSpec, DeploymentStrategy, RollingUpdateDeployment
from app.kinds.apps.replicaset import KIND as REPLICA_SETS
from app.kinds.apps.replicaset import ReplicaSet, ReplicaSetSpec
from app.machinery.base import LabelSelector, ObjectMeta
from tests.build import LONG_AGO, NOW, a_template

LABELS = {"app": "web"}
USUAL: dict[str, Any] = {
    "selector": LabelSelector(match_labels=LABELS),
    "template": a_template(labels=LABELS, restart_policy=""),
}


def a_deployment(**spec: Any) -> Deployment:
    meta = ObjectMeta(name="web", creation_timestamp=LONG_AGO)
    return KIND.prepare(Deployment(metadata=meta, spec=DeploymentSpec(**(USUAL | spec))))


def test_defaults() -> None:
    spec = a_deployment().spec
    assert (spec.replicas, spec.revision_history_limit, spec.progress_deadline_seconds) == (1, 10, 600)
    assert spec.strategy == DeploymentStrategy(
        type="RollingUpdate", rolling_update=RollingUpdateDeployment(max_surge="25%", max_unavailable="25%")
    )
    assert spec.template.spec.restart_policy == "Always"
    assert a_deployment(strategy=DeploymentStrategy(type="Recreate")).spec.strategy.rolling_update is None
    assert KIND.prepare(a_deployment()) == a_deployment()


STEPS = RollingUpdateDeployment


@pytest.mark.parametrize(
    ("spec", "fault"),
    [
        pytest.param({}, "", id="nothing"),
        pytest.param(
            {"replicas": -1}, "spec.replicas: Invalid value: -1: must be greater than or equal to 0", id="replicas"
        ),
        pytest.param({"selector": None}, "spec.selector: Required value", id="no selector"),
        pytest.param(
            {"selector": LabelSelector()},
            "spec.selector: Invalid value: {}: empty selector is invalid for deployment",
            id="an empty selector",
        ),
        pytest.param(
            {"selector": LabelSelector(match_labels={"app": "x"})},
            'spec.template.metadata.labels: Invalid value: {"app":"web"}: `selector` does not match template `labels`',
            id="a selector of others",
        ),
        pytest.param(
            {"template": a_template(labels=LABELS, restart_policy="Never")},
            'spec.template.spec.restartPolicy: Unsupported value: "Never": supported values: "Always"',
            id="pods that end",
        ),
        pytest.param(
            {"template": a_template(labels=LABELS, restart_policy="Always", active_deadline_seconds=1)},
            "spec.template.spec.activeDeadlineSeconds: Forbidden: activeDeadlineSeconds in ReplicaSet is not Supported",
            id="pods with a deadline",
        ),
        pytest.param(
            {"strategy": DeploymentStrategy(type="Recreate", rolling_update=STEPS())},
            "spec.strategy.rollingUpdate: Forbidden: may not be specified when strategy `type` is 'Recreate'",
            id="steps of Recreate",
        ),
        pytest.param(
            {"strategy": DeploymentStrategy(rolling_update=STEPS(max_surge=0, max_unavailable="0%"))},
            'spec.strategy.rollingUpdate.maxUnavailable: Invalid value: "0%": may not be 0 when `maxSurge` is 0',
            id="no step is allowed",
        ),
        pytest.param(
            {"strategy": DeploymentStrategy(rolling_update=STEPS(max_unavailable="101%"))},
            'spec.strategy.rollingUpdate.maxUnavailable: Invalid value: "101%": must not be greater than 100%',
            id="more than all",
        ),
        pytest.param(
            {"min_ready_seconds": 9, "progress_deadline_seconds": 9},
            "spec.progressDeadlineSeconds: Invalid value: 9: must be greater than minReadySeconds",
            id="a deadline that nothing can keep",
        ),
    ],
)
def test_what_is_refused(spec: dict[str, Any], fault: str) -> None:
    faults = [f"{cause.field}: {cause.message}" for cause in KIND.validate(a_deployment(**spec))]
    assert faults == ([fault] if fault else [])


def test_the_selector_never_changes_and_the_spec_counts_generations() -> None:
    old = KIND.on_create(a_deployment(), NOW)
    other = a_deployment(selector=LabelSelector(match_labels={"app": "x"}))
    assert [cause.field for cause in KIND.validate_update(other, old)] == ["spec.selector"]
    assert KIND.on_update(a_deployment(replicas=2), old).metadata.generation == 2
    assert KIND.on_update(a_deployment(), old).metadata.generation == 1


def test_rows() -> None:
    made = a_deployment(replicas=3)
    made = replace(made, status=replace(made.status, ready_replicas=2, updated_replicas=3, available_replicas=1))
    assert KIND.row(made, NOW) == ["web", "2/3", 3, 1, "120m", "main", "busybox", "app=web"]
    spec = ReplicaSetSpec(**USUAL, replicas=3)
    other = REPLICA_SETS.prepare(ReplicaSet(metadata=made.metadata, spec=spec))
    assert REPLICA_SETS.row(other, NOW) == ["web", 3, 0, 0, "120m", "main", "busybox", "app=web"]
    assert other.metadata.labels == LABELS
    assert REPLICA_SETS.validate(other) == []

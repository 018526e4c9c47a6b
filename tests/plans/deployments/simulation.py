"""A Deployment in memory: carries plans out, whole and against the versions that they were made from, and starts pods."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from msgspec.structs import replace

from app.kinds.apps.deployment import KIND as DEPLOYMENTS
from app.kinds.apps.deployment import Deployment, DeploymentSpec
from app.kinds.apps.replicaset import KIND as REPLICA_SETS
from app.kinds.apps.replicaset import ReplicaSet
from app.kinds.pod.pod import Pod, PodStatus, is_active
from app.machinery.base import Condition, LabelSelector, Object, ObjectMeta
from app.machinery.meta.owner_references import controller_uid
from app.plans.deployments import deployment as deployment_plan
from app.plans.deployments import replica_set as replica_set_plan
from app.plans.plan import Create, Delete, Emit, Plan, SetStatus, Update
from tests.build import LONG_AGO, NOW, a_template, names

ROUNDS = 50


def a_deployment(image: str = "one", **spec: Any) -> Deployment:
    """As it is stored: three pods, unless told otherwise."""
    labels = {"app": "web"}
    template = a_template(labels=labels, restart_policy="Always")
    usual = {"replicas": 3, "selector": LabelSelector(match_labels=labels), "template": template}
    meta = ObjectMeta(name="web", namespace="default", uid="uid-of-web", generation=1, creation_timestamp=LONG_AGO)
    made = DEPLOYMENTS.prepare(
        Deployment(api_version="apps/v1", kind="Deployment", metadata=meta, spec=DeploymentSpec(**(usual | spec)))
    )
    return with_image(made, image)


def with_image(deployment: Deployment, image: str) -> Deployment:
    template = deployment.spec.template
    containers = (replace(template.spec.containers[0], image=image),)
    template = replace(template, spec=replace(template.spec, containers=containers))
    return replace(deployment, spec=replace(deployment.spec, template=template))


class Simulation:
    """`sets` and `pods` by name. Nothing happens but by its methods."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        self.sets: dict[str, ReplicaSet] = {}
        self.pods: dict[str, Pod] = {}
        self.events: list[str] = []
        self.now = NOW
        self.names = names()
        self._uids = 0

    def edit(self, deployment: Deployment | None = None, **spec: Any) -> None:
        """A client changes the spec."""
        new = deployment or self.deployment
        new = replace(new, spec=replace(new.spec, **spec))
        self.deployment = DEPLOYMENTS.on_update(DEPLOYMENTS.prepare(new), self.deployment)

    def sync(self) -> Plan:
        """Let both controllers plan until there is nothing to do; the last plan of the Deployment."""
        for _ in range(ROUNDS):
            before = (self.deployment, dict(self.sets), dict(self.pods))
            plan = self.step()
            if before == (self.deployment, self.sets, self.pods):
                return plan
        raise AssertionError("the plans go in circles")

    def step(self) -> Plan:
        plan = deployment_plan.plan(self.deployment, list(self.sets.values()), lambda name: name in self.sets, self.now)
        self._carry_out(plan)
        for each in list(self.sets.values()):
            mine = [pod for pod in self.pods.values() if controller_uid(pod) == each.metadata.uid]
            self._carry_out(replica_set_plan.plan(each, mine, self.names, self.now))
        return plan

    def _carry_out(self, plan: Plan) -> None:
        for action in plan.actions:
            match action:
                case Create(obj):
                    self._create(obj)
                case Update(new, old):
                    assert self.sets[old.metadata.name] is old
                    self.sets[old.metadata.name] = new
                case SetStatus(Deployment() as obj):
                    assert not DEPLOYMENTS.validate_status(obj, self.deployment)
                    self.deployment = obj
                case SetStatus(obj):
                    assert not REPLICA_SETS.validate_status(obj, obj)
                    self.sets[obj.metadata.name] = obj
                case Delete(ReplicaSet() as obj):
                    del self.sets[obj.metadata.name]
                case Delete(obj):
                    del self.pods[obj.metadata.name]
                case Emit():
                    self.events.append(f"{action.reason}: {action.message}")

    def _create(self, obj: Object) -> None:
        self._uids += 1
        obj = replace(obj, metadata=replace(obj.metadata, uid=f"uid-{self._uids}", creation_timestamp=self.now))
        if isinstance(obj, ReplicaSet):
            assert obj.metadata.name not in self.sets
            made = REPLICA_SETS.prepare(obj)
            assert not REPLICA_SETS.validate(made)
            self.sets[obj.metadata.name] = REPLICA_SETS.on_create(made, self.now)
        elif isinstance(obj, Pod):
            self.pods[obj.metadata.name] = replace(obj, status=PodStatus(phase="Pending"))

    # --- the world

    def start(self, count: int | None = None, image: str = "") -> None:
        """So many of the pods that do not run become ready, or all."""
        waiting = [each for each in self.active() if each.status.phase == "Pending" and image in image_of(each)]
        for pod in waiting[:count]:
            ready = Condition(type="Ready", status="True", last_transition_time=self.now)
            self._replace(pod, replace(pod, status=PodStatus(phase="Running", conditions=(ready,))))

    def end(self, pod: Pod, phase: str = "Failed") -> None:
        self._replace(pod, replace(pod, status=PodStatus(phase=phase)))

    def _replace(self, pod: Pod, new: Pod) -> None:
        self.pods[pod.metadata.name] = new

    def pass_time(self, **span: float) -> None:
        self.now += timedelta(**span)

    # --- questions

    def active(self) -> Sequence[Pod]:
        return [pod for pod in self.pods.values() if is_active(pod)]

    def ready(self) -> int:
        return sum(pod.status.phase == "Running" for pod in self.pods.values())

    def images(self) -> str:
        """Of the active pods, in order: `one one two`."""
        return " ".join(sorted(map(image_of, self.active())))

    def reason(self, type_: str) -> str:
        return next((each.reason for each in self.deployment.status.conditions if each.type == type_), "")


def image_of(pod: Pod) -> str:
    return pod.spec.containers[0].image

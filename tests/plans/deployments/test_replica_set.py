"""ReplicaSets: as many pods as are wanted, those that cost least go first, and what ends is replaced without end or loop."""

from msgspec.structs import replace

from app.kinds.apps.replicaset import ReplicaSet, ReplicaSetStatus
from app.kinds.core.resourcequota import ResourceQuota, ResourceQuotaSpec, ResourceQuotaStatus
from app.kinds.pod.pod import Pod
from app.machinery.base import ObjectMeta
from app.machinery.meta.owner_references import controller_uid
from app.plans.admission.pod_admission import Rules
from app.plans.deployments.replica_set import FAILURE, KEPT, plan
from app.plans.plan import Plan, SetStatus
from tests.build import created, deleted, names, told
from tests.plans.deployments.simulation import Simulation, a_deployment


def running(replicas: int = 3) -> Simulation:
    world = Simulation(a_deployment(replicas=replicas))
    world.sync()
    world.start()
    world.sync()
    return world


def status_of(made: Plan) -> ReplicaSetStatus:
    return next(each.object.status for each in made.actions if isinstance(each, SetStatus))


def the_set(world: Simulation) -> ReplicaSet:
    (only,) = world.sets.values()
    return only


def test_a_pod_belongs_to_its_replica_set() -> None:
    world = running(1)
    (pod,) = world.active()
    owner = the_set(world)
    assert controller_uid(pod) == owner.metadata.uid
    assert pod.metadata.name.startswith(f"{owner.metadata.name}-")
    assert (pod.metadata.generate_name, pod.spec.restart_policy) == (f"{owner.metadata.name}-", "Always")


def test_a_pod_that_ends_is_replaced() -> None:
    world = running()
    world.end(world.active()[0])
    world.sync()
    assert len(world.active()) == 3


def test_a_pod_that_is_deleted_is_replaced_before_it_is_gone() -> None:
    world = running()
    pod = world.active()[0]
    going = replace(pod, metadata=replace(pod.metadata, deletion_timestamp=world.now))
    made = plan(the_set(world), [going, *world.active()[1:]], names(), world.now)
    assert (len(created(made)), deleted(made)) == (1, [])
    assert (status_of(made).replicas, status_of(made).terminating_replicas) == (3, 1)


def test_pods_that_cost_least_are_deleted_first() -> None:
    world = running(4)
    cheap, dear, idle, usual = world.active()
    cheap = with_cost(cheap, "-5")
    idle = replace(idle, status=replace(idle.status, conditions=()))
    fewer = replace(the_set(world), spec=replace(the_set(world).spec, replicas=2))
    made = plan(fewer, [with_cost(dear, "5"), usual, cheap, idle], names(), world.now)
    assert [pod.metadata.name for pod in deleted(made)] == [idle.metadata.name, cheap.metadata.name]
    assert told(made) == ["SuccessfulDelete", "SuccessfulDelete"]


def with_cost(pod: Pod, cost: str) -> Pod:
    key = "controller.kubernetes.io/pod-deletion-cost"
    return replace(pod, metadata=replace(pod.metadata, annotations={key: cost}))


def test_of_pods_that_ended_few_are_kept_and_a_loop_pauses() -> None:
    world = running(1)
    for _ in range(3 * KEPT):
        for pod in world.active():
            world.end(pod)
        world.sync()
    assert (len(world.active()), len(world.pods)) == (0, KEPT)

    made = plan(the_set(world), list(world.pods.values()), names(), world.now)
    assert (made.actions, made.again_at is not None) == ((), True)
    world.pass_time(seconds=60)
    world.sync()
    assert len(world.active()) == 1


def test_pods_that_a_quota_refuses_are_a_condition_and_come_later() -> None:
    world = running()
    hard = ResourceQuota(
        metadata=ObjectMeta(name="q", namespace="default", uid="q"),
        spec=ResourceQuotaSpec(hard={"pods": "4"}),
        status=ResourceQuotaStatus(hard={"pods": "4"}, used={"pods": "3"}),
    )
    more = replace(the_set(world), spec=replace(the_set(world).spec, replicas=6))
    made = plan(more, list(world.active()), names(), world.now, Rules(quotas=(hard,)))

    assert len(created(made)) == 1
    (failure,) = status_of(made).conditions
    assert (failure.type, failure.reason) == (FAILURE, "FailedCreate")
    assert "exceeded quota: q" in failure.message
    assert "FailedCreate" in told(made)

    after = next(each.object for each in made.actions if isinstance(each, SetStatus))
    full = replace(hard, status=replace(hard.status, used={"pods": "4"}))
    pods, other_names = [*world.active(), *created(made)], names()
    again = plan(after, pods, lambda prefix: other_names(f"{prefix}other-"), world.now, Rules(quotas=(full,)))
    assert (again.actions, again.again_at is not None) == ((), True)

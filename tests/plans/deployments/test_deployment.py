"""Deployments, simulated: pods are replaced step by step, within the limits, and the status says how far it is."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some
from msgspec.structs import replace

from app.kinds.apps.deployment import DeploymentStrategy, RollingUpdateDeployment
from app.machinery.errors import forbidden_error
from app.plans.admission.pod_admission import Rules
from app.plans.deployments import deployment as deployment_plan
from app.plans.deployments.revisions import REVISION, hash_of
from app.plans.deployments.rollout import limits_of
from app.plans.plan import Emit
from tests.plans.deployments.simulation import Simulation, a_deployment, with_image


def rolling(surge: Any, unavailable: Any) -> DeploymentStrategy:
    steps = RollingUpdateDeployment(max_surge=surge, max_unavailable=unavailable)
    return DeploymentStrategy(type="RollingUpdate", rolling_update=steps)


def running(**spec: Any) -> Simulation:
    """All pods of the first image are ready."""
    world = Simulation(a_deployment(**spec))
    world.sync()
    world.start()
    world.sync()
    return world


def revisions(world: Simulation) -> dict[str, int | None]:
    """How many pods each revision should have."""
    return {each.metadata.annotations[REVISION]: each.spec.replicas for each in world.sets.values()}


def test_the_first_template_gets_its_pods() -> None:
    world = Simulation(a_deployment())
    world.sync()

    (only,) = world.sets.values()
    mark = {"pod-template-hash": hash_of(world.deployment.spec.template, 0)}
    assert only.metadata.name == f"web-{mark['pod-template-hash']}"
    assert only.spec.selector.match_labels == {"app": "web"} | mark
    assert all(pod.metadata.labels == {"app": "web"} | mark for pod in world.pods.values())
    assert (world.reason("Available"), world.reason("Progressing")) == (
        "MinimumReplicasUnavailable",
        "ReplicaSetUpdated",
    )
    assert world.deployment.metadata.annotations == {REVISION: "1"}

    world.start()
    world.sync()
    status = world.deployment.status
    assert (status.replicas, status.updated_replicas, status.ready_replicas, status.available_replicas) == (3, 3, 3, 3)
    assert (world.reason("Available"), world.reason("Progressing")) == (
        "MinimumReplicasAvailable",
        "NewReplicaSetAvailable",
    )
    assert world.events[0] == f"ScalingReplicaSet: Scaled up replica set {only.metadata.name} from 0 to 3"


def test_pods_are_replaced_one_after_the_other() -> None:
    world = running(strategy=rolling(1, 0))
    world.edit(with_image(world.deployment, "two"))
    seen = []
    for _ in range(4):
        world.sync()
        seen.append(world.images())
        world.start()

    assert seen == ["one one one two", "one one two two", "one two two two", "two two two"]
    assert world.reason("Progressing") == "NewReplicaSetAvailable"
    assert revisions(world) == {"1": 0, "2": 3}


def test_recreate_starts_no_pod_before_the_last_one_has_ended() -> None:
    world = running(strategy=DeploymentStrategy(type="Recreate"))
    world.edit(with_image(world.deployment, "two"))
    world.step()
    assert world.images() == ""
    world.sync()
    assert world.images() == "two two two"


def test_a_rollback_takes_the_old_replica_set_again() -> None:
    world = running()
    world.edit(with_image(world.deployment, "two"))
    for _ in range(6):
        world.sync()
        world.start()
    world.edit(with_image(world.deployment, "one"))
    for _ in range(6):
        world.sync()
        world.start()

    assert (world.images(), len(world.sets)) == ("one one one", 2)
    assert revisions(world) == {"3": 3, "2": 0}
    assert world.deployment.metadata.annotations[REVISION] == "3"


def test_a_broken_image_takes_no_more_than_it_may_and_is_said_to_be_stuck() -> None:
    world = running(replicas=4, progress_deadline_seconds=60)
    world.edit(with_image(world.deployment, "broken"))
    plan = world.sync()
    assert world.ready() == 3
    assert plan.again_at is not None

    world.pass_time(seconds=60)
    world.sync()
    assert (world.reason("Progressing"), world.ready()) == ("ProgressDeadlineExceeded", 3)

    world.edit(with_image(world.deployment, "one"))
    world.sync()
    world.start()
    world.sync()
    assert (world.images(), world.reason("Progressing")) == ("one one one one", "NewReplicaSetAvailable")


def test_while_it_is_paused_nothing_is_replaced_but_it_scales() -> None:
    world = running()
    world.edit(with_image(world.deployment, "two"), paused=True)
    world.sync()
    assert (world.images(), world.reason("Progressing")) == ("one one one", "DeploymentPaused")
    world.edit(replicas=5)
    world.sync()
    assert world.images() == "one one one one one"
    world.edit(replicas=1)
    world.sync()
    assert world.images() == "one"
    world.edit(paused=False)
    for _ in range(3):
        world.sync()
        world.start()
    assert world.images() == "two"


def test_pods_count_as_available_only_after_a_while() -> None:
    world = Simulation(a_deployment(min_ready_seconds=30))
    world.sync()
    world.start()
    world.sync()
    assert (world.deployment.status.ready_replicas, world.deployment.status.available_replicas) == (3, 0)
    world.pass_time(seconds=30)
    world.sync()
    assert world.deployment.status.available_replicas == 3


def test_few_old_replica_sets_are_kept() -> None:
    world = running(revision_history_limit=1)
    for image in ("two", "three", "four"):
        world.edit(with_image(world.deployment, image))
        for _ in range(6):
            world.sync()
            world.start()
    assert revisions(world) == {"3": 0, "4": 3}


def test_a_name_that_is_taken_is_not_used() -> None:
    world = Simulation(a_deployment())
    taken = f"web-{hash_of(world.deployment.spec.template, 0)}"
    plan = deployment_plan.plan(world.deployment, [], lambda name: name == taken, world.now)
    world._carry_out(plan)
    (only,) = world.sets
    assert only == f"web-{hash_of(world.deployment.spec.template, 1)}"
    assert world.deployment.status.collision_count == 1


def test_a_replica_set_that_is_refused_takes_nothing_from_the_others() -> None:
    world = running()
    world.edit(with_image(world.deployment, "two"))
    rules = Rules(refusal=forbidden_error("replicasets.apps", "web", "no"))
    plan = deployment_plan.plan(world.deployment, list(world.sets.values()), lambda _: False, world.now, rules)
    world._carry_out(plan)

    assert (len(world.sets), world.images()) == (1, "one one one")
    assert world.reason("Progressing") == "ReplicaSetCreateError"
    assert [each.reason for each in plan.actions if isinstance(each, Emit)] == ["ReplicaSetCreateError"]
    assert plan.again_at is not None
    again = deployment_plan.plan(world.deployment, list(world.sets.values()), lambda _: False, world.now, rules)
    assert again.actions == ()


def test_what_is_deleted_is_left_alone() -> None:
    world = running()
    going = replace(world.deployment, metadata=replace(world.deployment.metadata, deletion_timestamp=world.now))
    assert deployment_plan.plan(going, [], lambda _: False, world.now).actions == ()


_AMOUNTS = some.one_of(some.integers(0, 4), some.integers(0, 100).map(lambda number: f"{number}%"))


@given(
    surge=_AMOUNTS,
    unavailable=_AMOUNTS,
    replicas=some.integers(1, 7),
    script=some.lists(some.tuples(some.sampled_from(["one", "two", "three"]), some.integers(0, 4)), max_size=8),
)
def test_replacing_pods_keeps_within_its_limits(
    surge: Any, unavailable: Any, replicas: int, script: list[tuple[str, int]]
) -> None:
    """Whatever templates follow each other, and however few pods start in between."""
    world = running(replicas=replicas, strategy=rolling(surge, unavailable))
    limits = limits_of(world.deployment)
    for image, started in script:
        world.edit(with_image(world.deployment, image))
        for _ in range(3):
            world.step()
            assert sum(each.spec.replicas or 0 for each in world.sets.values()) <= replicas + limits.surge
            assert len(world.active()) <= replicas + limits.surge
            assert world.ready() >= replicas - limits.unavailable
        world.start(started)
    for _ in range(3 * replicas + 3):
        world.sync()
        world.start()
    wanted = script[-1][0] if script else "one"
    assert world.images() == " ".join([wanted] * replicas)
    assert world.reason("Progressing") == "NewReplicaSetAvailable"


@pytest.mark.parametrize(
    ("surge", "unavailable", "expected"),
    [
        pytest.param("25%", "25%", (1, 0), id="of three, a quarter is one up and none down"),
        pytest.param("0%", "1%", (0, 1), id="one at least, or nothing would ever happen"),
        pytest.param(2, 9, (2, 3), id="no more than there are"),
    ],
)
def test_parts_of_the_whole(surge: Any, unavailable: Any, expected: tuple[int, int]) -> None:
    limits = limits_of(a_deployment(strategy=rolling(surge, unavailable)))
    assert (limits.surge, limits.unavailable) == expected

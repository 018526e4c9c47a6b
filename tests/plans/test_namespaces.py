"""What becomes of a namespace that is deleted: emptied, told why it waits, and let go."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from app.kinds.base import Condition, ObjectMeta
from app.kinds.namespace import Namespace, NamespaceSpec, NamespaceStatus
from app.plans.namespaces import plan
from app.plans.plan import Delete, Plan, Update
from tests.build import LONG_AGO, NOW, a_job, pods

OTHERS = "example.com/x"


def a_namespace(*finalizers: str, going: bool = True, conditions: tuple[Condition, ...] = ()) -> Namespace:
    return Namespace(
        metadata=ObjectMeta(name="research", deletion_timestamp=LONG_AGO if going else None),
        spec=NamespaceSpec(finalizers=finalizers),
        status=NamespaceStatus(phase="Terminating" if going else "Active", conditions=conditions),
    )


GOING = a_namespace("kubernetes")


@pytest.mark.parametrize(
    "namespace",
    [
        pytest.param(a_namespace("kubernetes", going=False), id="one that lives"),
        pytest.param(a_namespace(OTHERS), id="one that others hold"),
        pytest.param(a_namespace(), id="one that its metadata holds"),
    ],
)
@pytest.mark.parametrize("left", [{}, {"pods": 2}], ids=["empty", "full"])
def test_nothing_is_done_about(namespace: Namespace, left: dict[str, int]) -> None:
    assert plan(namespace, left, pods("rr") if left else [], NOW) == Plan()


def test_what_lives_in_it_is_deleted_and_then_the_rest_is_looked_at() -> None:
    content = [a_job(), *pods("rs")]

    result = plan(GOING, {"jobs.batch": 1, "pods": 9}, content, NOW)

    assert result.actions == tuple(Delete(each, propagation="Background") for each in content)
    assert result.again_at == NOW


def said(result: Plan) -> Condition:
    (update,) = result.actions
    assert isinstance(update, Update)
    assert isinstance(update.object, Namespace)
    (condition,) = update.object.status.conditions
    assert update.object == replace(GOING, status=replace(GOING.status, conditions=(condition,)))
    return condition


def test_while_something_is_on_its_way_out_it_says_what() -> None:
    result = plan(GOING, {"pods": 2, "jobs.batch": 1}, [], NOW)

    condition = said(result)
    assert (condition.type, condition.status) == ("NamespaceContentRemaining", "True")
    assert condition.reason == "SomeResourcesRemain"
    assert condition.message == (
        "Some resources are remaining: jobs.batch has 1 resource instances, pods. has 2 resource instances"
    )
    assert condition.last_transition_time == NOW
    assert result.again_at == NOW + timedelta(seconds=5)


def test_what_was_said_is_not_said_again() -> None:
    told = a_namespace("kubernetes", conditions=(said(plan(GOING, {"pods": 2}, [], NOW)),))
    later = NOW + timedelta(minutes=1)

    assert plan(told, {"pods": 2}, [], later) == Plan(again_at=later + timedelta(seconds=5))

    fewer = said(plan(told, {"pods": 1}, [], later))
    assert fewer.message.endswith("pods. has 1 resource instances")
    assert fewer.last_transition_time == NOW  # its status is as it was


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(("kubernetes",), (), id="last"),
        pytest.param((OTHERS, "kubernetes"), (OTHERS,), id="not those of others"),
    ],
)
def test_when_it_is_empty_the_finalizer_goes(before: tuple[str, ...], after: tuple[str, ...]) -> None:
    namespace = a_namespace(*before)

    assert plan(namespace, {}, [], NOW) == Plan((Update(a_namespace(*after), namespace),))

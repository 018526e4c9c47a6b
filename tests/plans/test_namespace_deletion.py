"""What becomes of a namespace that is deleted: emptied, told why it waits, and let go."""

from datetime import timedelta

import pytest

from app.kinds.core.namespace import Namespace, NamespaceSpec, NamespaceStatus
from app.machinery.base import Condition, ObjectMeta
from app.plans.namespace_deletion import Content, plan
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
    assert plan(namespace, Content(living=pods("rr") if left else [], left=left), NOW) == Plan()


def test_what_lives_in_it_is_deleted_and_then_the_rest_is_looked_at() -> None:
    content = [a_job(), *pods("rs")]

    result = plan(GOING, Content(living=content, left={"jobs.batch": 1, "pods": 9}), NOW)

    assert result.actions == tuple(Delete(each, propagation="Background") for each in content)
    assert result.again_at == NOW


def told(result: Plan) -> Namespace:
    (update,) = result.actions
    assert isinstance(update, Update)
    assert isinstance(update.object, Namespace)
    return update.object


def said(result: Plan) -> dict[str, Condition]:
    conditions = told(result).status.conditions
    assert [each.type for each in conditions] == TYPES
    return {each.type: each for each in conditions}


TYPES = [
    "NamespaceDeletionDiscoveryFailure",
    "NamespaceDeletionGroupVersionParsingFailure",
    "NamespaceDeletionContentFailure",
    "NamespaceContentRemaining",
    "NamespaceFinalizersRemaining",
]
BUSY = Content(left={"pods": 2, "jobs.batch": 1}, finalizers={"b/y": 1, "a/x": 2})


def test_while_something_is_on_its_way_out_it_says_what() -> None:
    result = plan(GOING, BUSY, NOW)

    conditions = said(result)
    assert result.again_at == NOW + timedelta(seconds=5)
    assert {each.last_transition_time for each in conditions.values()} == {NOW}
    assert [each.status for each in conditions.values()] == ["False", "False", "False", "True", "True"]
    remaining, held = conditions[TYPES[3]], conditions[TYPES[4]]
    assert (remaining.reason, held.reason) == ("SomeResourcesRemain", "SomeFinalizersRemain")
    assert remaining.message == (
        "Some resources are remaining: jobs.batch has 1 resource instances, pods. has 2 resource instances"
    )
    assert held.message == (
        "Some content in the namespace has finalizers remaining: a/x in 2 resource instances, b/y in 1 resource instances"
    )


def test_what_is_well_is_said_too() -> None:
    conditions = said(plan(GOING, Content(left={"pods": 1}), NOW))

    assert {each.reason: each.message for each in conditions.values() if each.status == "False"} == {
        "ResourcesDiscovered": "All resources successfully discovered",
        "ParsedGroupVersions": "All legacy kube types successfully parsed",
        "ContentDeleted": "All content successfully deleted, may be waiting on finalization",
        "ContentHasNoFinalizers": "All content-preserving finalizers finished",
    }


def test_what_went_wrong_is_said_and_tried_again() -> None:
    result = plan(GOING, Content(failures=["secrets b: broken", "pods a: broken"]), NOW)

    failure = said(result)["NamespaceDeletionContentFailure"]
    assert (failure.status, failure.reason) == ("True", "ContentDeletionFailed")
    assert failure.message == "Failed to delete all resource types, 2 remaining: pods a: broken, secrets b: broken"
    assert result.again_at is not None


def test_what_was_said_is_not_said_again() -> None:
    before = told(plan(GOING, BUSY, NOW))
    later = NOW + timedelta(minutes=1)

    assert plan(before, BUSY, later) == Plan(again_at=later + timedelta(seconds=5))

    fewer = said(plan(before, Content(left={"pods": 1}), later))
    assert fewer[TYPES[3]].message.endswith("pods. has 1 resource instances")
    assert fewer[TYPES[3]].last_transition_time == NOW  # its status is as it was
    assert fewer[TYPES[4]].last_transition_time == later


def test_conditions_of_others_stay() -> None:
    other = Condition(type="example.com/Odd", status="True")

    conditions = told(plan(a_namespace("kubernetes", conditions=(other,)), BUSY, NOW)).status.conditions

    assert [each.type for each in conditions] == ["example.com/Odd", *TYPES]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(("kubernetes",), (), id="last"),
        pytest.param((OTHERS, "kubernetes"), (OTHERS,), id="not those of others"),
    ],
)
def test_when_it_is_empty_the_finalizer_goes(before: tuple[str, ...], after: tuple[str, ...]) -> None:
    result = plan(a_namespace(*before), Content(), NOW)

    assert told(result).spec.finalizers == after
    assert {each.status for each in said(result).values()} == {"False"}
    assert result.again_at is None

"""What becomes of an object by what has become of its owners."""

from typing import Any

import pytest
from msgspec.structs import replace

from app.kinds.core.configmap import ConfigMap
from app.kinds.pod.pod import Pod
from app.machinery.base import Object, OwnerReference
from app.machinery.meta.metadata_validation import FOREGROUND, ORPHAN
from app.plans import garbage_collection
from app.plans.garbage_collection import Owner, plan
from app.plans.jobs.finalizers import TRACKING
from app.plans.plan import Action, Delete, Emit, Update
from tests.build import LONG_AGO, a_job, pods

FATES = {
    "l": Owner.EXISTS,
    "w": Owner.WAITS,
    "g": Owner.GONE,
    "m": Owner.MISPLACED,
    "u": Owner.UNKNOWN,
}


def owned(letters: str, **metadata: Any) -> ConfigMap:
    """By one owner a letter, which its UID begins with."""
    references = tuple(
        OwnerReference(api_version="v1", kind="ConfigMap", name=f"{letter}{n}", uid=f"{letter}{n}")
        for n, letter in enumerate(letters)
    )
    return ConfigMap(metadata=replace(ConfigMap().metadata, name="it", owner_references=references, **metadata))


def judge(reference: OwnerReference) -> Owner:
    return FATES[reference.uid[0]]


def said(actions: tuple[Action, ...]) -> str:
    parts = []
    for action in actions:
        match action:
            case Delete(propagation=propagation):
                parts.append(f"delete {propagation}")
            case Update(obj):
                names = [each.name for each in obj.metadata.owner_references]
                parts.append(f"keep {', '.join(names) or 'none'}")
    return "; ".join(parts) or "nothing"


@pytest.mark.parametrize(
    ("owners", "owns", "expected"),
    [
        pytest.param("", False, "nothing", id="nobody's stays"),
        pytest.param("l", True, "nothing", id="its owner lives"),
        pytest.param("ll", False, "nothing", id="all its owners live"),
        pytest.param("g", False, "delete Background", id="its owner is gone"),
        pytest.param("gg", True, "delete Background", id="all its owners are gone"),
        pytest.param("gl", False, "keep l1", id="one owner is gone"),
        pytest.param("lwg", True, "keep l0", id="one owner lives"),
        pytest.param("w", False, "delete Background", id="its owner waits for it"),
        pytest.param("w", True, "delete Foreground", id="its owner waits for all below it"),
        pytest.param("gw", True, "delete Foreground", id="one is gone and one waits"),
        pytest.param("u", False, "nothing", id="nobody knows its owner"),
        pytest.param("ug", False, "nothing", id="nobody knows one of its owners"),
        pytest.param("mg", False, "nothing", id="one owner cannot be one"),
    ],
)
def test_plan(owners: str, owns: bool, expected: str) -> None:
    assert said(plan(owned(owners), judge, owns=owns)) == expected


@pytest.mark.parametrize(("finalizer", "policy"), [(ORPHAN, "Orphan"), (FOREGROUND, "Foreground")])
def test_a_policy_that_was_set_beforehand_is_kept(finalizer: str, policy: str) -> None:
    assert said(plan(owned("g", finalizers=(finalizer,)), judge, owns=True)) == f"delete {policy}"


def test_what_is_going_needs_nothing() -> None:
    assert plan(owned("g", deletion_timestamp=LONG_AGO), judge, owns=False) == ()


def gone(_: OwnerReference) -> Owner:
    return Owner.GONE


@pytest.mark.parametrize("letter", ["r", "s", "t"])
@pytest.mark.parametrize("owner", [Owner.GONE, Owner.WAITS], ids=["gone", "waiting"])
def test_nobody_will_count_the_pods_of_a_job(letter: str, owner: Owner) -> None:
    (pod,) = pods(letter)
    held = replace(pod, metadata=replace(pod.metadata, finalizers=("a/b", TRACKING)))

    (action,) = plan(held, lambda _: owner, owns=False)

    assert isinstance(action, Update if letter == "t" else Delete)
    assert (action.object.metadata.finalizers, action.old) == (("a/b",), held)


def test_a_pod_that_has_been_counted_is_deleted_as_it_is() -> None:
    (pod,) = pods("R")

    assert plan(pod, gone, owns=False) == (Delete(pod, None, propagation="Background"),)
    assert plan(pods("T")[0], gone, owns=False) == ()


OTHER = OwnerReference(api_version="v1", kind="ConfigMap", name="other", uid="other")


def shared(pod: Pod) -> Pod:
    return replace(pod, metadata=replace(pod.metadata, owner_references=(*pod.metadata.owner_references, OTHER)))


def test_a_job_that_is_gone_counts_nothing_though_another_owner_lives() -> None:
    pod = shared(pods("r")[0])

    (update,) = plan(pod, lambda owner: Owner.EXISTS if owner == OTHER else Owner.GONE, owns=False)

    assert (update.object.metadata.owner_references, update.object.metadata.finalizers) == ((OTHER,), ())


def test_a_job_that_lives_counts_though_another_owner_is_gone() -> None:
    pod = shared(pods("r")[0])

    (update,) = plan(pod, lambda owner: Owner.GONE if owner == OTHER else Owner.EXISTS, owns=False)

    assert (len(update.object.metadata.owner_references), update.object.metadata.finalizers) == (1, (TRACKING,))


def test_orphans_lose_one_owner_and_whoever_would_count_them() -> None:
    tracked = shared(pods("r")[0])

    (update,) = garbage_collection.orphan_dependents("uid-of-pi", [tracked])

    assert update.object.metadata.owner_references == (OTHER,)
    assert update.object.metadata.finalizers == ()
    (kept,) = garbage_collection.orphan_dependents("other", [tracked])
    assert kept.object.metadata.finalizers == (TRACKING,)


def test_an_owner_is_released_of_one_finalizer() -> None:
    job = a_job(metadata={"deletion_timestamp": LONG_AGO, "finalizers": (FOREGROUND, "example.com/x")})

    released = garbage_collection.unblock_owner(job, FOREGROUND).object

    assert garbage_collection.is_deleted_in_foreground(job)
    assert not garbage_collection.is_deleted_in_foreground(released)
    assert released.metadata.finalizers == ("example.com/x",)


@pytest.mark.parametrize("claim", [garbage_collection.is_deleted_in_foreground, garbage_collection.is_orphaning])
def test_a_finalizer_means_nothing_while_the_object_lives(claim: Any) -> None:
    assert not claim(a_job(metadata={"finalizers": (FOREGROUND, ORPHAN)}))


def test_an_owner_in_another_namespace_is_told_of() -> None:
    obj: Object = owned("g", namespace="home")

    (emit,) = garbage_collection.misplaced_owner_events(obj, obj.metadata.owner_references)

    assert isinstance(emit, Emit)
    assert (emit.type, emit.reason) == ("Warning", "OwnerRefInvalidNamespace")
    identity = "[v1/ConfigMap, namespace: home, name: g0, uid: g0]"
    assert emit.message == f'ownerRef {identity} does not exist in namespace "home"'

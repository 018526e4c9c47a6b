"""What becomes of pods whose Job goes: in the background, in the foreground, or left as orphans."""

from typing import Any

import pytest
from msgspec.structs import replace

from app.kinds.base import Object, OwnerReference
from app.kinds.job import Job
from app.kinds.pod import Pod
from app.plans.garbage import plan
from app.plans.plan import Delete, Plan, Update
from app.plans.tracking import TRACKING
from tests.build import LONG_AGO, a_job, pods

UID = "uid-of-pi"


def going(*finalizers: str) -> Job:
    return a_job(metadata={"deletion_timestamp": LONG_AGO, "finalizers": finalizers})


def said(result: Plan) -> str:
    def name(obj: Object) -> str:
        return obj.metadata.name

    parts = []
    for action in result.actions:
        match action:
            case Delete(obj):
                parts.append(f"delete {name(obj)}")
            case Update(Job() as job):
                parts.append(f"finalizers of {name(job)}: {', '.join(job.metadata.finalizers) or 'none'}")
            case Update(obj):
                parts.append(f"let go of {name(obj)}")
    return "; ".join(parts) or "nothing"


@pytest.mark.parametrize(
    ("owner", "letters", "expected"),
    [
        pytest.param(a_job(), "rs", "nothing", id="an owner that lives keeps its pods"),
        pytest.param(None, "rs", "delete pi-0; delete pi-1", id="an owner that is gone leaves none"),
        pytest.param(None, "", "nothing", id="nor anything to do without pods"),
        pytest.param(None, "T", "nothing", id="a pod that is going and free needs nothing"),
        pytest.param(None, "t", "delete pi-0", id="a pod that is going and held is freed"),
        pytest.param(going("example.com/x"), "r", "nothing", id="in the background an owner that is held keeps them"),
        pytest.param(going("orphan"), "rs", "let go of pi-0; let go of pi-1; finalizers of pi: none", id="orphans"),
        pytest.param(going("orphan"), "", "finalizers of pi: none", id="no orphans"),
        pytest.param(going("foregroundDeletion"), "rs", "delete pi-0; delete pi-1", id="in the foreground it waits"),
        pytest.param(going("foregroundDeletion"), "T", "nothing", id="for the last to be gone"),
        pytest.param(going("foregroundDeletion"), "", "finalizers of pi: none", id="and then goes"),
        pytest.param(
            going("foregroundDeletion", "example.com/x"),
            "",
            "finalizers of pi: example.com/x",
            id="if nobody else minds",
        ),
    ],
)
def test_plan(owner: Job | None, letters: str, expected: str) -> None:
    assert said(plan(owner, UID, pods(letters))) == expected


def objects(result: Plan) -> list[Any]:
    return [(each.object, each.old) for each in result.actions if isinstance(each, Update | Delete)]


@pytest.mark.parametrize("owner", [None, going("orphan"), going("foregroundDeletion")])
def test_nobody_will_count_the_pods_so_nothing_may_hold_them(owner: Job | None) -> None:
    held = [replace(pod, metadata=replace(pod.metadata, finalizers=("a/b", TRACKING))) for pod in pods("rs")]

    changed = [(new, old) for new, old in objects(plan(owner, UID, held)) if isinstance(new, Pod)]

    assert [new.metadata.finalizers for new, _ in changed] == [("a/b",), ("a/b",)]
    assert [old for _, old in changed] == held


def test_an_orphan_keeps_its_other_owners() -> None:
    (pod,) = pods("r")
    other = OwnerReference(kind="Thing", name="other", uid="another")
    both = replace(pod, metadata=replace(pod.metadata, owner_references=(*pod.metadata.owner_references, other)))

    (orphan, _), _ = objects(plan(going("orphan"), UID, [both]))

    assert orphan.metadata.owner_references == (other,)


def test_in_the_foreground_only_those_that_block_are_waited_for() -> None:
    (pod,) = pods("r")
    (owner,) = pod.metadata.owner_references
    loose = replace(pod, metadata=replace(pod.metadata, owner_references=(replace(owner, block_owner_deletion=False),)))

    result = plan(going("foregroundDeletion"), UID, [loose])

    assert said(result) == "delete pi-0; finalizers of pi: none"


def test_a_pod_without_finalizers_is_deleted_as_it_is() -> None:
    (pod,) = pods("R")

    (action,) = plan(None, UID, [pod]).actions

    assert action == Delete(pod, None, propagation="Background")

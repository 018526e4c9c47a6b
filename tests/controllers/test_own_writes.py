"""Own writes of a settled plan: each is known by the version that it replaces."""

import pytest

from app.controllers.own_writes import OwnWrites
from app.machinery.base import Object, ObjectMeta
from app.store import MUST_NOT_EXIST, Key, Write, precondition

JOB = Key("jobs.batch", "default", "pi")
POD = Key("pods", "default", "pi-x")
NAMESPACE = Key("namespaces", "", "default")


def version(number: int) -> Object:
    return Object(metadata=ObjectMeta(resource_version=str(number)))


@pytest.fixture
def own_writes() -> OwnWrites:
    made = OwnWrites()
    writes = [Write(key=JOB, change="M", expected=7), Write(key=POD, change="A", expected=MUST_NOT_EXIST)]
    made.begin(JOB, [*writes, precondition(NAMESPACE)])
    return made


def test_own_changes_are_skipped(own_writes: OwnWrites) -> None:
    assert own_writes.skips(JOB, JOB, version(7))
    assert own_writes.skips(JOB, POD, None)
    assert not own_writes.end(JOB, is_done=True)


def test_changes_by_others_are_not_skipped(own_writes: OwnWrites) -> None:
    assert not own_writes.skips(JOB, JOB, version(8))
    assert not own_writes.skips(JOB, POD, version(8))
    assert not own_writes.skips(JOB, NAMESPACE, None)
    assert not own_writes.skips(Key("jobs.batch", "default", "other"), JOB, version(7))


def test_a_refused_plan_needs_a_sync_for_the_skipped_change(own_writes: OwnWrites) -> None:
    assert own_writes.skips(JOB, JOB, version(7))
    assert own_writes.end(JOB, is_done=False)

    assert not own_writes.skips(JOB, JOB, version(7))
    assert not own_writes.end(JOB, is_done=False)

"""What a plan writes that settles its key: its own changes, each in the place of the version that it was made from."""

import pytest

from app.controllers.settling import Settling
from app.machinery.base import Object, ObjectMeta
from app.store import MUST_NOT_EXIST, Key, Write, precondition

JOB = Key("jobs.batch", "default", "pi")
POD = Key("pods", "default", "pi-x")
NAMESPACE = Key("namespaces", "", "default")


def version(number: int) -> Object:
    return Object(metadata=ObjectMeta(resource_version=str(number)))


@pytest.fixture
def settling() -> Settling:
    made = Settling()
    writes = [Write(key=JOB, change="M", expected=7), Write(key=POD, change="A", expected=MUST_NOT_EXIST)]
    made.begin(JOB, [*writes, precondition(NAMESPACE)])
    return made


def test_its_own_changes_are_passed_over(settling: Settling) -> None:
    assert settling.passes_over(JOB, JOB, version(7))
    assert settling.passes_over(JOB, POD, None)
    assert not settling.end(JOB, is_done=True)


def test_other_changes_are_not(settling: Settling) -> None:
    assert not settling.passes_over(JOB, JOB, version(8))
    assert not settling.passes_over(JOB, POD, version(8))
    assert not settling.passes_over(JOB, NAMESPACE, None)
    assert not settling.passes_over(Key("jobs.batch", "default", "other"), JOB, version(7))


def test_if_the_plan_was_refused_the_change_was_that_of_another(settling: Settling) -> None:
    assert settling.passes_over(JOB, JOB, version(7))
    assert settling.end(JOB, is_done=False)

    assert not settling.passes_over(JOB, JOB, version(7))
    assert not settling.end(JOB, is_done=False)

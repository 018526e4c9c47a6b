"""What an update may not change in a Job, and what it may while the Job is suspended."""

import re

import pytest
from msgspec.structs import replace

from app.kinds.batch.job import KIND, Job
from app.machinery.errors import Cause
from tests.kinds.jobs import created, stored
from tests.kinds.tables import INDEXED
from tests.kinds.tables.updates import AT_REST, NEVER_STARTED, SCHEDULING, UPDATES


def updated(old: Job, new: Job) -> list[Cause]:
    return KIND.validate_update(KIND.on_update(new, old), old)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({}, id="nothing changes"),
        pytest.param({"parallelism": 7}, id="parallelism changes"),
        pytest.param({"backoffLimit": 7}, id="backoffLimit changes"),
        pytest.param({"activeDeadlineSeconds": 7}, id="the deadline changes"),
        pytest.param({"ttlSecondsAfterFinished": 7}, id="the ttl changes"),
        pytest.param({"suspend": True}, id="it is suspended"),
        pytest.param({"podReplacementPolicy": "Failed"}, id="podReplacementPolicy changes"),
        pytest.param({"maxFailedIndexes": 7}, id="maxFailedIndexes changes"),
        pytest.param({"completions": 20, "parallelism": 20}, id="it grows in tandem"),
        pytest.param({"completions": 5, "parallelism": 5}, id="it shrinks in tandem"),
    ],
)
def test_an_update_is_valid_when(changes):
    spec = {**INDEXED, "parallelism": 3, "backoffLimitPerIndex": 1}

    assert updated(created(spec), created({**spec, **changes})) == []


@pytest.mark.parametrize("refused", UPDATES.values(), ids=[*UPDATES])
def test_an_update_is_refused_when(refused):
    old = stored(**refused.before)
    new = KIND.on_update(created(**refused.sent), old)

    causes = KIND.validate(new) + KIND.validate_update(new, old)
    assert [*map(brief, causes)] == [*refused.causes]


def brief(cause: Cause) -> Cause:
    """Without the whole of a template."""
    whole = cause.field == "spec.template"
    return cause._replace(message=re.sub(r"\{.*\}", "{...}", cause.message)) if whole else cause


@pytest.mark.parametrize(
    "status",
    [pytest.param(NEVER_STARTED, id="never started"), pytest.param(AT_REST, id="suspended and without pods")],
)
@pytest.mark.parametrize(("before", "after"), SCHEDULING.values(), ids=[*SCHEDULING])
def test_a_suspended_template_may_change_when(before, after, status):
    old = stored(status, spec={"suspend": True}, pod=before)

    assert updated(old, created({"suspend": True}, pod=after)) == []


@pytest.mark.parametrize("part", ["labels", "annotations"])
def test_more_may_be_said_about_a_suspended_template_in(part):
    old = created({"suspend": True})
    template = old.spec.template
    said = {part: getattr(template.metadata, part) | {"app": "pi"}}
    new = replace(old, spec=replace(old.spec, template=replace(template, metadata=replace(template.metadata, **said))))

    assert updated(old, new) == []
    assert KIND.validate(new) == []


def test_one_request_may_change_a_suspended_template_and_resume():
    old = created({"suspend": True})

    assert updated(old, created({"suspend": False}, pod={"nodeSelector": {"disk": "ssd"}})) == []


def test_the_stored_job_decides_whether_it_is_suspended():
    causes = updated(created(), created({"suspend": True}, pod={"nodeSelector": {"disk": "ssd"}}))

    assert [cause.field for cause in causes] == ["spec.template"]

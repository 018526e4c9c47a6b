"""What an update may not change in a Job, and what it may while the Job is suspended."""

import pytest
from msgspec.structs import replace

from app.kinds.errors import Cause
from app.kinds.job import KIND, Job
from tests.kinds.jobs import INDEXED, INVALID, created, stored

IMMUTABLE = "field is immutable"
ON_ONE = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [1]}}


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


@pytest.mark.parametrize(
    ("before", "after", "field", "message"),
    [
        pytest.param(
            {}, {"completions": 2}, "spec.completions", f"Invalid value: 2: {IMMUTABLE}", id="completions change"
        ),
        pytest.param(
            {"parallelism": 2},
            {"parallelism": 2, "completions": 2},
            "spec.completions",
            f"Invalid value: 2: {IMMUTABLE}",
            id="a work queue gets completions",
        ),
        pytest.param(
            {"parallelism": 2, "completions": 2},
            {"parallelism": 2},
            "spec.completions",
            f"Invalid value: null: {IMMUTABLE}",
            id="completions go away",
        ),
        pytest.param(
            {**INDEXED, "parallelism": 3},
            {**INDEXED, "parallelism": 3, "completions": 4},
            "spec.completions",
            "Invalid value: 4: can only be modified in tandem with spec.parallelism",
            id="completions of an Indexed Job change alone",
        ),
        pytest.param(
            {},
            {"selector": {"matchLabels": {"app": "pi"}}, "manualSelector": True},
            "spec.selector",
            f'Invalid value: {{"matchLabels":{{"app":"pi"}}}}: {IMMUTABLE}',
            id="the selector changes",
        ),
        pytest.param(
            {"completions": 1},
            {"completions": 1, "completionMode": "Indexed"},
            "spec.completionMode",
            f'Invalid value: "Indexed": {IMMUTABLE}',
            id="the completion mode changes",
        ),
        pytest.param(
            {"podReplacementPolicy": "Failed"},
            {"podReplacementPolicy": "Failed", "podFailurePolicy": {"rules": [ON_ONE]}},
            "spec.podFailurePolicy",
            'Invalid value: {"rules":[{"action":"FailJob","onExitCodes":{"operator":"In","values":[1]}}]}: '
            f"{IMMUTABLE}",
            id="a failure policy is added",
        ),
        pytest.param(
            {"podFailurePolicy": {"rules": [ON_ONE]}, "podReplacementPolicy": "Failed"},
            {"podReplacementPolicy": "Failed"},
            "spec.podFailurePolicy",
            f"Invalid value: null: {IMMUTABLE}",
            id="the failure policy is removed",
        ),
        pytest.param(
            {**INDEXED, "backoffLimitPerIndex": 1},
            {**INDEXED, "backoffLimitPerIndex": 2},
            "spec.backoffLimitPerIndex",
            f"Invalid value: 2: {IMMUTABLE}",
            id="the limit for each index changes",
        ),
        pytest.param(
            {"suspend": True},
            {"suspend": True, "managedBy": "acme.io/foo"},
            "spec.managedBy",
            f'Invalid value: "acme.io/foo": {IMMUTABLE}',
            id="the manager changes, even while suspended",
        ),
        pytest.param(
            {**INDEXED, "successPolicy": {"rules": [{"succeededCount": 1}]}},
            {**INDEXED, "successPolicy": {"rules": [{"succeededCount": 2}]}},
            "spec.successPolicy",
            f'Invalid value: {{"rules":[{{"succeededCount":2}}]}}: {IMMUTABLE}',
            id="the success policy changes",
        ),
    ],
)
def test_an_update_is_refused_when(before, after, field, message):
    causes = updated(created(before), created(after))

    # A changed selector comes with changed labels here, and so with a changed template.
    assert [each for each in causes if each.field != "spec.template"] == [Cause(INVALID, message, field)]


NODE_AFFINITY = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "Exists"}]}]
        }
    }
}
POD_AFFINITY = {
    "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "kubernetes.io/hostname"}]}
}
MORE_CPU = {
    "containers": [
        {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "3"}}}
    ],
    "initContainers": [{"name": "first", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}],
}
NEVER_STARTED: dict = {}
RUNNING = {"startTime": "2026-07-24T11:00:00Z", "active": 1}
AT_REST = {
    "startTime": "2026-07-24T11:00:00Z",
    "conditions": [{"type": "Suspended", "status": "True"}],
}
NOT_YET_AT_REST = {**AT_REST, "active": 1}
WITH_INIT = {"initContainers": [{"name": "first", "image": "busybox"}]}

SCHEDULING = [
    pytest.param({}, {"affinity": NODE_AFFINITY}, id="node affinity is added"),
    pytest.param({"affinity": NODE_AFFINITY}, {}, id="node affinity is removed"),
    pytest.param(
        {"affinity": POD_AFFINITY}, {"affinity": {**POD_AFFINITY, **NODE_AFFINITY}}, id="node affinity joins another"
    ),
    pytest.param({}, {"nodeSelector": {"disk": "ssd"}}, id="the node selector changes"),
    pytest.param({}, {"tolerations": [{"key": "gpu", "operator": "Exists"}]}, id="tolerations change"),
    pytest.param({}, {"schedulingGates": [{"name": "acme.io/wait"}]}, id="scheduling gates change"),
    pytest.param(WITH_INIT, MORE_CPU, id="resources change"),
]


@pytest.mark.parametrize(
    "status",
    [pytest.param(NEVER_STARTED, id="never started"), pytest.param(AT_REST, id="suspended and without pods")],
)
@pytest.mark.parametrize(("before", "after"), SCHEDULING)
def test_a_suspended_template_may_change_when(before, after, status):
    old = stored(status, spec={"suspend": True}, pod=before)

    assert updated(old, created({"suspend": True}, pod=after)) == []


@pytest.mark.parametrize(
    ("suspend", "status"),
    [
        pytest.param(False, RUNNING, id="the Job runs"),
        pytest.param(False, NEVER_STARTED, id="the Job is about to start"),
        pytest.param(True, RUNNING, id="the Job is about to be suspended"),
        pytest.param(True, NOT_YET_AT_REST, id="the suspended Job still has pods"),
    ],
)
@pytest.mark.parametrize(("before", "after"), SCHEDULING)
def test_a_template_stays_as_it_is_when(before, after, suspend, status):
    old = stored(status, spec={"suspend": suspend}, pod=before)

    (cause,) = updated(old, created({"suspend": suspend}, pod=after))

    assert cause.field == "spec.template"
    assert cause.message.endswith(f": {IMMUTABLE}")


@pytest.mark.parametrize("part", ["labels", "annotations"])
def test_more_may_be_said_about_a_suspended_template_in(part):
    old = created({"suspend": True})
    template = old.spec.template
    said = {part: getattr(template.metadata, part) | {"app": "pi"}}
    new = replace(old, spec=replace(old.spec, template=replace(template, metadata=replace(template.metadata, **said))))

    assert updated(old, new) == []
    assert KIND.validate(new) == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param({}, {"containers": [{"name": "main", "image": "busybox:2"}]}, id="an image may not"),
        pytest.param(
            {},
            {"containers": [{"name": "main", "image": "busybox"}, {"name": "more", "image": "busybox"}]},
            id="the number of containers may not",
        ),
        pytest.param({}, {"affinity": POD_AFFINITY}, id="pod affinity may not come"),
        pytest.param({"affinity": {**POD_AFFINITY, **NODE_AFFINITY}}, {}, id="pod affinity may not go"),
        pytest.param({}, {"priorityClassName": "high"}, id="the priority may not"),
    ],
)
def test_of_a_suspended_template(before, after):
    old = created({"suspend": True}, pod=before)

    (cause,) = updated(old, created({"suspend": True}, pod=after))

    assert (cause.reason, cause.field) == (INVALID, "spec.template")
    assert cause.message.endswith(f": {IMMUTABLE}")


def test_one_request_may_change_a_suspended_template_and_resume():
    old = created({"suspend": True})

    assert updated(old, created({"suspend": False}, pod={"nodeSelector": {"disk": "ssd"}})) == []


def test_the_stored_job_decides_whether_it_is_suspended():
    causes = updated(created(), created({"suspend": True}, pod={"nodeSelector": {"disk": "ssd"}}))

    assert [cause.field for cause in causes] == ["spec.template"]

"""What the rules of its namespace let a Job create: as many pods as fit, charged, and the rest told and tried again."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some
from msgspec.structs import replace

from app.kinds.core.limitrange import KIND as LIMIT_RANGES
from app.kinds.core.limitrange import LimitRange
from app.kinds.core.resourcequota import ResourceQuota
from app.kinds.scheduling.priorityclass import PriorityClass
from app.machinery.base import ObjectMeta
from app.plans.admission.pod_admission import Rules
from app.plans.admission.refusals import ANNOTATION
from app.plans.jobs.job import plan
from app.plans.plan import Emit, Plan
from tests.build import NOW, a_job, a_template, created, deleted, names, pods, said, status_of, stored, told, updated
from tests.plans.admission.test_resource_quota import a_quota


def planned(rules: Rules, phases: str = "", now: Any = NOW, metadata: dict | None = None, **spec: Any) -> Plan:
    return plan(a_job(metadata=metadata, **spec), pods(phases), now, names(), rules)


def used(made: Plan) -> dict[str, Any]:
    return next((dict(each.status.used) for each in updated(made) if isinstance(each, ResourceQuota)), {})


def messages(made: Plan) -> list[str]:
    return [each.message for each in made.actions if isinstance(each, Emit) and each.reason == "FailedCreate"]


RULES = "tried again in 1s, or as soon as the rules change"
FOUR = {"parallelism": 4, "completions": 6}


def test_as_many_pods_as_fit_are_created_and_charged() -> None:
    made = planned(Rules(quotas=[a_quota({"pods": "3"}, {"pods": "1"})]), **FOUR)

    assert said(made) == "create 2"
    assert status_of(made).active == 2
    assert used(made) == {"pods": "3"}
    assert messages(made) == [
        'Error creating: pods "pi-new2" is forbidden: '
        "exceeded quota: q, requested: pods=1, used: pods=3, limited: pods=3; tried again as soon as the quota has room"
    ]
    assert made.again_at == NOW + timedelta(seconds=1)


def test_when_all_fit_nothing_is_told() -> None:
    made = planned(Rules(quotas=[a_quota({"pods": "4"}), a_quota({"secrets": "0"}, name="r")]), **FOUR)

    assert (said(made), used(made), messages(made), made.again_at) == ("create 4", {"pods": "4"}, [], None)


def test_when_none_fits_that_is_all_that_is_told() -> None:
    made = planned(Rules(quotas=[a_quota({"pods": "0"})]), **FOUR)

    assert (said(made), used(made), status_of(made).active, told(made)) == ("nothing", {}, 0, ["FailedCreate"])


def refused_before(times: int, seconds_ago: int) -> dict[str, Any]:
    at = NOW - timedelta(seconds=seconds_ago)
    return {"annotations": {ANNOTATION: f"{times};{at:%Y-%m-%dT%H:%M:%SZ}"}}


@pytest.mark.parametrize(
    ("times", "seconds_ago", "tells", "again"),
    [
        pytest.param(1, 0, False, 1, id="told just now it is quiet for a second"),
        pytest.param(3, 2, False, 2, id="told for the third time it is quiet for four seconds"),
        pytest.param(3, 4, True, 8, id="then it tells again, and is quiet for twice as long"),
        pytest.param(30, 60, True, 60, id="it is never quiet for more than a minute"),
    ],
)
def test_a_refusal_is_told_with_growing_pauses(times: int, seconds_ago: int, tells: bool, again: int) -> None:
    rules = Rules(quotas=[a_quota({"pods": "0"})])
    made = planned(rules, metadata=refused_before(times, seconds_ago), **FOUR)

    assert bool(messages(made)) is tells
    assert made.again_at == NOW + timedelta(seconds=again)


def test_what_fits_again_is_forgotten() -> None:
    job = a_job(metadata=refused_before(3, 1) | {"uid": "u"}, **FOUR)
    made = plan(job, [], NOW, names(), Rules())

    assert ANNOTATION not in stored(made, job).metadata.annotations
    assert said(made) == "create 4"


def test_what_a_garbled_annotation_says_counts_for_nothing() -> None:
    made = planned(Rules(quotas=[a_quota({"pods": "0"})]), metadata={"annotations": {ANNOTATION: "x;y"}}, **FOUR)

    assert len(messages(made)) == 1


def test_the_lowest_indexes_come_first() -> None:
    made = planned(Rules(quotas=[a_quota({"pods": "2"})]), completion_mode="Indexed", **FOUR)

    assert [pod.spec.hostname for pod in created(made)] == ["pi-0", "pi-1"]


def test_more_pods_than_one_plan_creates_are_refused_once() -> None:
    made = planned(Rules(quotas=[a_quota({"pods": "10"})]), parallelism=900, completions=900)

    assert (len(created(made)), len(messages(made))) == (10, 1)
    assert made.again_at == NOW + timedelta(seconds=1)


SIZES = LIMIT_RANGES.prepare(
    msgspec.convert(
        {"spec": {"limits": [{"type": "Container", "max": {"cpu": "1"}, "default": {"cpu": "500m"}}]}}, LimitRange
    )
)


def test_pods_get_what_limit_ranges_give_and_are_charged_for_it() -> None:
    made = planned(Rules(quotas=[a_quota({"limits.cpu": "1"})], limit_ranges=[SIZES]), **FOUR)

    assert [pod.spec.containers[0].resources.limits for pod in created(made)] == [{"cpu": "500m"}] * 2
    assert used(made) == {"limits.cpu": "1"}


def with_resources(**resources: Any) -> Any:
    template = a_template()
    doc = msgspec.to_builtins(template)
    doc["spec"]["containers"][0]["resources"] = resources
    return msgspec.convert(doc, type(template))


@pytest.mark.parametrize(
    ("template", "rules", "message"),
    [
        pytest.param(
            with_resources(limits={"cpu": "2"}),
            Rules(limit_ranges=[SIZES]),
            'pods "pi-new0" is forbidden: maximum cpu usage per Container is 1, but limit is 2',
            id="too large",
        ),
        pytest.param(
            with_resources(requests={"cpu": "2"}),
            Rules(limit_ranges=[SIZES]),
            'Pod "pi-new0" is invalid: spec.containers[0].resources.requests: '
            'Invalid value: "2": must be less than or equal to cpu limit of 500m',
            id="invalid with the defaults that they get",
        ),
        pytest.param(
            a_template(priority_class_name="gold"),
            Rules(),
            'pods "pi-" is forbidden: no PriorityClass with name gold was found',
            id="of no priority class",
        ),
        pytest.param(
            a_template(runtime_class_name="nvidia"),
            Rules(),
            'pods "pi-" is forbidden: pod rejected: RuntimeClass "nvidia" not found',
            id="of a runtime class",
        ),
        pytest.param(
            a_template(service_account_name="robot"),
            Rules(),
            'pods "pi-" is forbidden: error looking up service account default/robot: serviceaccount "robot" not found',
            id="of no service account",
        ),
        pytest.param(
            a_template(),
            Rules(quotas=[a_quota({"cpu": "1"})]),
            'pods "pi-new0" is forbidden: failed quota: q: must specify cpu for: main',
            id="silent about what a quota limits",
        ),
    ],
)
def test_pods_are_refused(template: Any, rules: Rules, message: str) -> None:
    made = planned(rules, template=template, **FOUR)

    assert (said(made), messages(made)) == ("nothing", [f"Error creating: {message}; {RULES}"])


def test_pods_get_their_priority() -> None:
    usual = PriorityClass(metadata=ObjectMeta(name="usual"), value=10, global_default=True)
    made = planned(Rules(classes={"usual": usual}), **FOUR)

    assert {(pod.spec.priority, pod.spec.priority_class_name) for pod in created(made)} == {(10, "usual")}


@given(phases=some.text("prsf", max_size=8), limit=some.integers(0, 5), taken=some.integers(0, 7))
def test_a_quota_is_never_exceeded_and_counts_stay_exact(phases: str, limit: int, taken: int) -> None:
    quota = a_quota({"pods": str(limit)}, {"pods": str(taken)})
    job = a_job(parallelism=6, completions=9, backoff_limit=99)
    have = pods(phases, job)
    made = plan(job, have, NOW, names(), Rules(quotas=[quota]))

    new = len(created(made))
    assert new == 0 or taken + new <= limit
    assert used(made).get("pods", str(taken)) == str(taken + new)
    if status_of(made) != job.status:
        assert status_of(made).active == phases.count("p") + phases.count("r") + new - len(deleted(made))


def test_a_suspended_job_has_nothing_refused() -> None:
    job = replace(a_job(**FOUR), spec=replace(a_job(**FOUR).spec, suspend=True))
    made = plan(job, [], NOW, names(), Rules(quotas=[a_quota({"pods": "0"})]))

    assert messages(made) == []

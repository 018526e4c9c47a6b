"""What Jobs say of failures and success: Kubernetes' integration tests I8 to I13."""

from collections.abc import Iterable
from typing import Any

import pytest

from app.kinds.pod.pod import Pod
from app.plans.jobs.index_failure import FAILURES
from app.registry.verbs.objects import Registry
from tests.conformance.played import COMPLETE, FAILED, INDEXED, Play, of

FAIL_ON_5 = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [5]}}
IGNORE_DISRUPTION = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}


@pytest.fixture
def play(registry: Registry) -> Play:
    return Play(registry)


FAILURE_POLICY = pytest.mark.scenario("I8", "podFailurePolicy: which failures fail the Job, and which do not count")


@FAILURE_POLICY
@pytest.mark.parametrize("restart", [False, True], ids=["while the controller runs", "while it does not"])
async def test_i8_an_exit_code_fails_the_job(play: Play, restart: bool) -> None:
    await play.submit(of(1, podFailurePolicy={"rules": [FAIL_ON_5]}))
    async with play.running():
        (pod,) = await play.there_are(1)
        if not restart:
            await play.fail(pod, code=5)
            await play.shows(failed=1, active=0, true=FAILED, reason="PodFailurePolicy")
    if restart:
        await play.fail(pod, code=5)
        await play.crash()
        async with play.running():
            await play.shows(failed=1, active=0, true=FAILED, reason="PodFailurePolicy")
    message = (
        f"Container main for pod default/{pod.metadata.name} failed with exit code 5 matching FailJob rule at index 0"
    )
    assert (await play.job()).status.conditions[-1].message == message
    await play.all_are_free()


@FAILURE_POLICY
@pytest.mark.parametrize(
    ("rule", "end", "failed"),
    [
        pytest.param(IGNORE_DISRUPTION, {"condition": "DisruptionTarget"}, 0, id="ignored"),
        pytest.param({**FAIL_ON_5, "action": "Count"}, {"code": 5}, 1, id="counted"),
        pytest.param(FAIL_ON_5, {"code": 6}, 1, id="met by no rule, and so counted"),
    ],
)
async def test_i8_a_failure_is(play: Play, rule: dict[str, Any], end: dict[str, Any], failed: int) -> None:
    await play.submit(of(1, podFailurePolicy={"rules": [rule]}, backoffLimit=1))
    async with play.running() as controllers:
        await play.fail(*await play.there_are(1), **end)
        await play.shows(failed=failed, active=0)
        controllers.move(seconds=10)
        await play.shows(failed=failed, active=1)
        await play.succeed(*await play.active())
        await play.shows(failed=failed, succeeded=1, active=0, true=COMPLETE)


@pytest.mark.scenario("I9", "podFailurePolicy: the failed pod is deleted while the controller is down")
async def test_i9_what_a_failed_pod_has_told_outlives_it(play: Play) -> None:
    await play.submit(of(2, podFailurePolicy={"rules": [FAIL_ON_5]}))
    async with play.running():
        failing, other = await play.there_are(2)
        await play.start(failing, other)
    await play.fail(failing, code=5)
    await play.crash()
    job = await play.shows(true=("FailureTarget",), terminating=1)
    await play.remove(failing)
    async with play.running():
        await play.still()
        await play.shows(true=("FailureTarget",), active=0, terminating=1)
        await play.go(other)
        done = await play.shows(true=FAILED, failed=2, terminating=0)
    assert done.status.conditions[-1].message == job.status.conditions[-1].message
    await play.all_are_free()


SUCCESS_POLICY = pytest.mark.scenario("I10", "successPolicy: enough indexes have succeeded")


def succeeding(**rule: Any) -> dict[str, Any]:
    return {"successPolicy": {"rules": [rule]}, **INDEXED}


@SUCCESS_POLICY
async def test_i10_all_that_are_wanted_have_succeeded(play: Play) -> None:
    await play.submit(of(2, **succeeding(succeededIndexes="0,1")))
    async with play.running():
        await play.succeed(*(await play.indexes(0, 1)).values())
        await play.shows(succeeded=2, failed=0, active=0, true=COMPLETE, reason="SuccessPolicy")


# Where the first versions said Complete at once, later ones wait for the last pod. So do we.
@SUCCESS_POLICY
@pytest.mark.parametrize("rule", [{"succeededIndexes": "1"}, {"succeededCount": 1}], ids=["which", "how many"])
async def test_i10_the_others_are_stopped_when_a_rule_says(play: Play, rule: dict[str, Any]) -> None:
    await play.submit(of(2, **succeeding(**rule)))
    async with play.running():
        pods = await play.indexes(0, 1)
        await play.start(pods[0])
        await play.succeed(pods[1])
        await play.shows(active=0, succeeded=1, failed=0, terminating=1, true=("SuccessCriteriaMet",))
        await play.go(pods[0])
        job = await play.shows(active=0, succeeded=1, failed=0, terminating=0, true=COMPLETE, completed_indexes="1")
    assert [each.message for each in job.status.conditions] == 3 * ["Matched rules at index 0"]


@SUCCESS_POLICY
async def test_i10_a_pod_that_never_ran_keeps_nobody_waiting(play: Play) -> None:
    await play.submit(of(2, **succeeding(succeededIndexes="1")))
    async with play.running():
        await play.succeed((await play.indexes(0, 1))[1])
        await play.shows(active=0, succeeded=1, failed=0, terminating=0, true=COMPLETE)


@SUCCESS_POLICY
async def test_i10_an_index_that_failed_for_good_weighs_more(play: Play) -> None:
    await play.submit(of(2, backoffLimitPerIndex=0, **succeeding(succeededCount=1)))
    async with play.running():
        pods = await play.indexes(0, 1)
        await play.fail(pods[0])
        await play.shows(failed=1, failed_indexes="0", true=())
        await play.succeed(pods[1])
        await play.shows(failed=1, succeeded=1, failed_indexes="0", true=FAILED, reason="FailedIndexes")


DELAY = pytest.mark.scenario("I11", "the terminal condition waits for the last pod")


@DELAY
async def test_i11_a_job_has_failed_when_its_last_pod_has_ended(play: Play) -> None:
    await play.submit(of(2, backoffLimit=0))
    async with play.running():
        failing, other = await play.there_are(2)
        await play.start(other)
        await play.fail(failing)
        await play.shows(failed=2, active=0, terminating=1, true=("FailureTarget",))
        await play.still()
        await play.shows(true=("FailureTarget",))
        await play.go(other)
        await play.shows(failed=2, active=0, terminating=0, true=FAILED, reason="BackoffLimitExceeded")


@DELAY
async def test_i11_a_job_that_shrinks_is_complete_when_its_last_pod_has_ended(play: Play) -> None:
    await play.submit(of(2, **INDEXED))
    async with play.running():
        pods = await play.indexes(0, 1)
        await play.start(pods[1])
        await play.succeed(pods[0])
        await play.shows(completed_indexes="0", active=1)
        await play.resize(1)
        await play.shows(succeeded=1, active=0, terminating=1, true=("SuccessCriteriaMet",))
        await play.go(pods[1])
        await play.shows(succeeded=1, failed=0, terminating=0, true=COMPLETE, reason="CompletionsReached")


PER_INDEX = pytest.mark.scenario("I12", "backoffLimitPerIndex: each index has its own retries")


def failures(pods: Iterable[Pod]) -> list[str]:
    return [pod.metadata.annotations[FAILURES] for pod in pods]


@PER_INDEX
async def test_i12_an_index_is_retried_until_its_limit_is_exceeded(play: Play) -> None:
    await play.submit(of(2, backoffLimitPerIndex=2, **INDEXED))
    async with play.running() as controllers:
        for failed in range(2):
            pods = await play.indexes(0, 1)
            assert failures(pods.values()) == [str(failed), "0"]
            await play.fail(pods[0])
            await play.shows(active=1)
            controllers.move(seconds=10 * 2**failed)
            await play.shows(failed=failed + 1, active=2, failed_indexes="")
        pods = await play.indexes(0, 1)
        assert failures(pods.values()) == ["2", "0"]
        await play.fail(pods[0])
        await play.shows(failed=3, active=1, failed_indexes="0", true=())
        controllers.move(hours=1)
        await play.still()
        await play.succeed((await play.indexes(1))[1])
        await play.shows(failed=3, succeeded=1, completed_indexes="1", true=FAILED, reason="FailedIndexes")
    await play.all_are_free()


@PER_INDEX
async def test_i12_the_limit_of_the_job_holds_as_well(play: Play) -> None:
    await play.submit(of(5, backoffLimitPerIndex=2, backoffLimit=2, **INDEXED))
    async with play.running():
        pods = await play.indexes(0, 1, 2, 3, 4)
        await play.start(*pods.values())
        await play.fail(pods[0], pods[1], pods[2])
        await play.shows(failed=5, active=0, terminating=2, failed_indexes="", true=("FailureTarget",))
        await play.go(pods[3], pods[4])
        await play.shows(failed=5, terminating=0, failed_indexes="", true=FAILED, reason="BackoffLimitExceeded")


@PER_INDEX
async def test_i12_the_others_go_on_when_an_index_has_failed(play: Play) -> None:
    await play.submit(of(1, 2, backoffLimitPerIndex=0, **INDEXED))
    async with play.running():
        await play.fail((await play.indexes(0))[0])
        await play.shows(failed=1, failed_indexes="0", active=1, true=())
        await play.succeed((await play.indexes(1))[1])
        await play.shows(failed=1, succeeded=1, failed_indexes="0", completed_indexes="1", true=FAILED)


@PER_INDEX
async def test_i12_too_many_failed_indexes_end_the_job(play: Play) -> None:
    await play.submit(of(3, backoffLimitPerIndex=0, maxFailedIndexes=1, **INDEXED))
    async with play.running():
        pods = await play.indexes(0, 1, 2)
        await play.start(*pods.values())
        await play.fail(pods[0], pods[1])
        await play.shows(failed=3, active=0, terminating=1, failed_indexes="0,1", true=("FailureTarget",))
        await play.go(pods[2])
        await play.shows(failed=3, terminating=0, true=FAILED, reason="MaxFailedIndexesExceeded")


@PER_INDEX
@pytest.mark.parametrize(
    ("rule", "end"),
    [
        pytest.param({"onExitCodes": {"operator": "In", "values": [42]}}, {"code": 42}, id="an exit code"),
        pytest.param({"onPodConditions": [{"type": "ConfigError"}]}, {"condition": "ConfigError"}, id="a condition"),
    ],
)
async def test_i12_an_index_is_not_retried_after(play: Play, rule: dict[str, Any], end: dict[str, Any]) -> None:
    policy = {"rules": [{"action": "FailIndex", **rule}]}
    await play.submit(of(2, backoffLimitPerIndex=1, podFailurePolicy=policy, **INDEXED))
    async with play.running():
        pods = await play.indexes(0, 1)
        await play.fail(pods[0], **end)
        await play.shows(failed=1, active=1, failed_indexes="0", true=())
        await play.succeed(pods[1])
        await play.shows(failed=1, succeeded=1, failed_indexes="0", completed_indexes="1", true=FAILED)


@pytest.mark.scenario("I13", "backoffLimitPerIndex: a failed pod stays until its replacement carries its count")
async def test_i13_a_failed_pod_stays_until_its_failures_are_carried_on(play: Play) -> None:
    await play.submit(of(1, backoffLimitPerIndex=1, **INDEXED))
    async with play.running() as controllers:
        (pod,) = await play.there_are(1)
        await play.fail(pod)
        await play.remove(pod)
        await play.shows(active=0)
        await play.still()
        assert [each.metadata.uid for each in await play.pods()] == [pod.metadata.uid]
        controllers.move(seconds=10)
        (second,) = await play.there_are(1)
        assert failures([second]) == ["1"]
        await play.shows(failed=1, active=1)
        assert [each.metadata.uid for each in await play.pods()] == [second.metadata.uid]
        await play.succeed(second)
        await play.shows(failed=1, succeeded=1, failed_indexes="", true=COMPLETE)

"""Pods that are started, counted and replaced: Kubernetes' integration tests I1 to I7, I14 and I15."""

import pytest

from app.plans.jobs import scaling
from app.registry.verbs.objects import Registry
from tests.conformance.played import COMPLETE, INDEXED, Play, Running, of


@pytest.fixture
def play(registry: Registry) -> Play:
    return Play(registry)


@pytest.mark.scenario("I1", "one pod: the controller restarts, and is killed in a reconcile")
async def test_i1_one_pod_is_replaced_and_succeeds_across_restarts(play: Play) -> None:
    await play.submit()
    async with play.running():
        (pod,) = await play.there_are(1)
        await play.shows(active=1, ready=0)
    await play.fail(pod)
    await play.crash()
    async with play.running() as controllers:
        await play.shows(failed=1, active=0)
        controllers.move(seconds=10)
        (second,) = await play.there_are(1)
        await play.shows(failed=1, active=1)
    await play.succeed(second)
    await play.crash()
    async with play.running():
        await play.shows(succeeded=1, failed=1, active=0, true=COMPLETE)
        await play.still()
        await play.all_are_free()
    assert len(await play.pods()) == 2


@pytest.mark.scenario("I2", "work queue of five: no new pods after the first success")
async def test_i2_a_work_queue_starts_no_pods_after_a_success(play: Play) -> None:
    await play.submit(of(5, None))
    async with play.running() as controllers:
        pods = await play.there_are(5)
        await play.start(*pods[:2], ready=True)
        await play.shows(active=5, ready=2)

        await play.fail(*pods[3:])
        await play.shows(failed=2, active=3, ready=2)
        controllers.move(seconds=20)
        await play.shows(failed=2, active=5, ready=2)

        first, *others = [pod for pod in await play.active() if pod.status.phase == "Pending"]
        await play.succeed(first)
        await play.shows(succeeded=1, failed=2, active=4)
        await play.fail(*others)
        await play.shows(succeeded=1, failed=4, active=2)
        controllers.move(hours=1)
        await play.still()
        await play.succeed(*await play.there_are(2))
        await play.shows(succeeded=3, failed=4, active=0, ready=0, true=COMPLETE)
    await play.all_are_free()


@pytest.mark.scenario("I3", "parallelism decreases and increases: stopped pods are not failures")
async def test_i3_pods_that_scaling_down_stops_are_not_failures(play: Play) -> None:
    await play.submit(of(5, None, backoffLimit=2))
    async with play.running():
        await play.start(*await play.there_are(5))
        await play.alter({"parallelism": 2})
        await play.shows(active=2, failed=0, terminating=3)
        await play.go(*await play.terminating())
        await play.shows(active=2, failed=0, terminating=0)
        await play.alter({"parallelism": 4})
        await play.shows(active=4, failed=0, terminating=0)
        await play.succeed(*await play.active())
        await play.shows(succeeded=4, failed=0, active=0, true=COMPLETE)
    await play.all_are_free()


@pytest.mark.scenario("I4", "56 completions, parallelism 54, ten pods a step: every pod is counted")
async def test_i4_the_limit_of_pods_a_step_loses_no_counts(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scaling, "MOST_PODS", 10)
    await play.submit(of(54, 56))
    async with play.running() as controllers:
        pods = await play.there_are(54)
        await play.start(*pods[:52], ready=True)
        await play.shows(active=54, ready=52)
        await play.fail(*pods[52:])
        await play.shows(failed=2, active=52, ready=52)
        controllers.move(seconds=20)
        new = [pod for pod in await play.there_are(54) if pod.status.phase == "Pending"]

        await play.succeed(*pods[:52], new[0])
        await play.shows(failed=2, succeeded=53, active=3, ready=0)
        await play.succeed(*await play.there_are(3))
        await play.shows(failed=2, succeeded=56, active=0, true=COMPLETE)
    await play.all_are_free()


@pytest.mark.scenario("I5", "Indexed: indexes start in order, and again after a failure")
async def test_i5_each_index_runs_until_it_has_succeeded(play: Play) -> None:
    await play.submit(of(3, 4, **INDEXED))
    async with play.running() as controllers:
        pods = await play.indexes(0, 1, 2)
        await play.succeed(pods[1])
        await play.shows(completed_indexes="1", succeeded=1, active=3)
        pods = await play.indexes(0, 2, 3)
        await play.fail(pods[2])
        await play.shows(failed=1, active=2)
        controllers.move(seconds=10)
        again = await play.indexes(0, 2, 3)
        assert again[2].metadata.uid != pods[2].metadata.uid
        await play.shows(completed_indexes="1", failed=1, active=3)
        await play.succeed(*again.values())
        await play.shows(completed_indexes="0-3", succeeded=4, failed=1, active=0, true=COMPLETE)
    await play.all_are_free()


ELASTIC = pytest.mark.scenario("I6", "elastic Indexed Job: grows and shrinks")


@ELASTIC
async def test_i6_a_job_that_grows_runs_the_new_indexes(play: Play) -> None:
    await play.submit(of(3, **INDEXED))
    async with play.running():
        await play.indexes(0, 1, 2)
        await play.resize(4)
        await play.succeed(*(await play.indexes(0, 1, 2, 3)).values())
        await play.shows(completed_indexes="0-3", succeeded=4, failed=0, true=COMPLETE)


@ELASTIC
async def test_i6_what_a_job_shrinks_by_is_forgotten_but_for_its_failures(play: Play) -> None:
    await play.submit(of(3, **INDEXED))
    async with play.running() as controllers:
        pods = await play.indexes(0, 1, 2)
        await play.succeed(pods[1])
        await play.fail(pods[2])
        await play.shows(completed_indexes="1", succeeded=1, failed=1)
        await play.resize(1)
        await play.shows(completed_indexes="", succeeded=0, failed=1, active=1)
        controllers.move(minutes=1)
        await play.succeed((await play.indexes(0))[0])
        await play.shows(completed_indexes="0", succeeded=1, failed=1, active=0, true=COMPLETE)


@ELASTIC
async def test_i6_an_index_that_comes_back_runs_again(play: Play) -> None:
    await play.submit(of(3, **INDEXED))
    async with play.running():
        pods = await play.indexes(0, 1, 2)
        await play.succeed(pods[2])
        await play.shows(completed_indexes="2", succeeded=1, active=2)
        await play.resize(2)
        await play.shows(completed_indexes="", succeeded=0, active=2)
        await play.resize(3)
        again = await play.indexes(0, 1, 2)
        assert again[2].metadata.uid != pods[2].metadata.uid
        await play.succeed(*again.values())
        await play.shows(completed_indexes="0-2", succeeded=3, true=COMPLETE)


@ELASTIC
async def test_i6_a_job_that_shrinks_to_nothing_is_complete(play: Play) -> None:
    await play.submit(of(3, **INDEXED))
    async with play.running():
        await play.indexes(0, 1, 2)
        await play.resize(0)
        await play.shows(completed_indexes="", succeeded=0, failed=0, active=0, true=COMPLETE)


REPLACEMENT = pytest.mark.scenario("I7", "podReplacementPolicy: deleted pods are replaced at once, or after their end")
MODES = pytest.mark.parametrize("mode", ["NonIndexed", "Indexed"])


# Kubernetes also looks at its metric of pods created, by reason. Jobplane has no such metric.
@REPLACEMENT
@MODES
async def test_i7_deleted_pods_count_as_failed_and_are_replaced_while_they_end(play: Play, mode: str) -> None:
    await play.submit(of(2, completionMode=mode, podReplacementPolicy="TerminatingOrFailed"))
    async with play.running() as controllers:
        pods = await play.there_are(2)
        await play.start(*pods)
        await play.remove(*pods)
        await play.shows(active=0, failed=2, terminating=2)
        controllers.move(seconds=20)
        await play.shows(active=2, failed=2, terminating=2)
        await play.go(*pods)
        await play.shows(active=2, failed=2, terminating=0)


@REPLACEMENT
@MODES
async def test_i7_deleted_pods_are_replaced_and_counted_when_they_have_ended(play: Play, mode: str) -> None:
    await play.submit(of(2, completionMode=mode, podReplacementPolicy="Failed"))
    async with play.running() as controllers:
        pods = await play.there_are(2)
        await play.start(*pods)
        await play.remove(*pods)
        await play.shows(active=0, failed=0, terminating=2)
        controllers.move(minutes=1)
        await play.still()
        await play.shows(active=0, failed=0, terminating=2)
        await play.go(*pods)
        controllers.move(minutes=1)
        await play.shows(active=2, failed=2, terminating=0)


async def waits(play: Play, controllers: Running, seconds: int, active: int) -> None:
    """There are so many pods, and one more only when so many seconds have passed."""
    await play.shows(active=active)
    controllers.move(seconds=seconds - 1)
    await play.still()
    assert len(await play.active()) == active
    controllers.move(seconds=1)
    await play.there_are(active + 1)


@pytest.mark.scenario("I14", "back-off delay: doubles with each retry")
async def test_i14_each_retry_waits_twice_as_long(play: Play) -> None:
    await play.submit()
    async with play.running() as controllers:
        for seconds in (10, 20, 40):
            await play.fail(*await play.there_are(1))
            await waits(play, controllers, seconds, active=0)


@pytest.mark.scenario("I15", "back-off delay of an index: doubles with each retry, and does not delay other indexes")
async def test_i15_indexes_wait_each_for_itself(play: Play) -> None:
    await play.submit(of(2, backoffLimitPerIndex=9, **INDEXED))
    async with play.running() as controllers:
        for seconds in (10, 20):
            await play.fail((await play.indexes(0, 1))[0])
            await waits(play, controllers, seconds, active=1)
        await play.fail((await play.indexes(0, 1))[1])
        await waits(play, controllers, 10, active=1)
        await play.fail((await play.indexes(0, 1))[0])
        await waits(play, controllers, 40, active=1)

"""What a silent node may still run, and when that is replaced: never both at once, whatever two clocks say."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as some

from app.kinds.pod.affinity import Toleration
from app.kinds.pod.pod import Pod, PodSpec
from app.plans.nodes.node_loss_timing import DRIFT, MARGIN, SLACK, lost_after, stop_after, stopped_after, tolerated_loss

LEASE = timedelta(seconds=40)


def seconds(count: float) -> timedelta:
    return timedelta(seconds=count)


def a_pod(*tolerations: Toleration, grace: int | None = 30) -> Pod:
    return Pod(spec=PodSpec(tolerations=tolerations, termination_grace_period_seconds=grace))


def tolerating(count: int | None, key: str = "node.kubernetes.io/unreachable", effect: str = "NoExecute") -> Toleration:
    return Toleration(key=key, operator="Exists", effect=effect, toleration_seconds=count)


@pytest.mark.parametrize(
    ("tolerations", "borne"),
    [
        pytest.param([], 0, id="nothing, without a toleration"),
        pytest.param([tolerating(300)], 300, id="what it tolerates"),
        pytest.param([tolerating(300), tolerating(60)], 60, id="the shortest of several"),
        pytest.param([tolerating(-5)], 0, id="nothing, if that is negative"),
        pytest.param([tolerating(None), tolerating(60)], 60, id="the one that ends"),
        pytest.param([tolerating(300, "node.kubernetes.io/not-ready")], 0, id="nothing, if it tolerates another taint"),
        pytest.param([tolerating(300, effect="NoSchedule")], 0, id="nothing, if it tolerates another effect"),
        pytest.param([tolerating(30, effect="")], 30, id="what it tolerates of every effect"),
    ],
)
def test_a_pod_bears(tolerations: list[Toleration], borne: int) -> None:
    assert tolerated_loss(a_pod(*tolerations)) == seconds(borne)


@pytest.mark.parametrize(
    "toleration",
    [
        pytest.param(tolerating(None), id="that taint"),
        pytest.param(Toleration(operator="Exists"), id="every taint"),
    ],
)
def test_a_pod_bears_for_ever(toleration: Toleration) -> None:
    assert tolerated_loss(a_pod(toleration)) is None


@pytest.mark.parametrize(
    ("lease", "grace", "lost"),
    [
        pytest.param(40, 50, 50, id="by what is usual"),
        pytest.param(8, 50, 50, id="by the controllers' own grace, if its agent reckons with less"),
        pytest.param(120, 50, 130, id="by what its agent reckons with, if that is more"),
        pytest.param(None, 50, 50, id="by the controllers' own grace, if its lease says nothing"),
    ],
)
def test_a_node_is_lost(lease: int | None, grace: int, lost: int) -> None:
    assert lost_after(None if lease is None else seconds(lease), seconds(grace)) == seconds(lost)


@pytest.mark.parametrize(
    ("pod", "stopped", "over"),
    [
        pytest.param(a_pod(), 40, 47.95, id="at once without toleration, and has what is left"),
        pytest.param(a_pod(grace=3), 44.95, 47.95, id="in time for its grace"),
        pytest.param(a_pod(tolerating(300)), 317.65, 347.65, id="in time for its grace, late in what it tolerates"),
        pytest.param(a_pod(tolerating(300), grace=600), 40, 347.65, id="when the lease is over, with a long grace"),
        pytest.param(a_pod(tolerating(300), grace=0), 347.65, 347.65, id="at the last moment, without grace"),
        pytest.param(a_pod(tolerating(300), grace=None), 317.65, 347.65, id="with the usual grace, if it has none"),
    ],
)
def test_a_pod_is_stopped(pod: Pod, stopped: float, over: float) -> None:
    borne = tolerated_loss(pod)
    assert borne is not None
    assert stop_after(pod, borne, LEASE) == seconds(stopped)
    assert stopped_after(borne, LEASE) == seconds(over)


def spans(longest: int) -> some.SearchStrategy[timedelta]:
    return some.timedeltas(timedelta(), seconds(longest))


@given(
    lease=some.timedeltas(seconds(5), seconds(3600)),
    grace=some.timedeltas(seconds(1), seconds(3600)),
    tolerated=some.integers(0, 10**7),
    pod_grace=some.integers(0, 10**5),
    rates=some.tuples(*[some.floats(1 - 0.45 / DRIFT, 1 + 0.45 / DRIFT)] * 2),
    seen_late=spans(60),
    killed_late=spans(1),
    other_controller=spans(1).map(lambda behind: -behind),
)
def test_a_pod_is_never_replaced_before_it_is_over(
    lease: timedelta,
    grace: timedelta,
    tolerated: int,
    pod_grace: int,
    rates: tuple[float, float],
    seen_late: timedelta,
    killed_late: timedelta,
    other_controller: timedelta,
) -> None:
    """In true time since a renewal was sent, for an agent and a controller whose clocks run at different rates.

    The controller sees the renewal late. Another, with a clock that is ahead of its by a second, may have taken over.
    """
    pod = a_pod(tolerating(tolerated), grace=pod_grace)
    borne = tolerated_loss(pod)
    assert borne is not None
    agents_clock, controllers_clock = rates

    over = stopped_after(borne, lease) / agents_clock + killed_late
    replaced = seen_late + (lost_after(lease, grace) + borne) / controllers_clock + other_controller

    assert lease <= stop_after(pod, borne, lease) <= max(lease, stopped_after(borne, lease))
    assert over <= replaced


def test_pods_without_toleration_end_in_the_slack() -> None:
    assert LEASE < stopped_after(seconds(0), LEASE) < LEASE + SLACK - MARGIN / 2

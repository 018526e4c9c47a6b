"""What a node says of a pod: the words that clients match on."""

from datetime import UTC, datetime, timedelta

import pytest

from app.kinds.pod.container import Container
from app.kinds.pod.pod import Pod, PodSpec, PodStatus
from app.machinery.base import Condition, ObjectMeta
from app.plans.kubelet import pod_status
from app.plans.kubelet.container_history import Run
from app.plans.kubelet.pod_status import PodContext
from app.plans.kubelet.sync_pod import plan

NOW = datetime(2026, 1, 31, 12, 0, 0, 654321, tzinfo=UTC)
WHOLE = NOW.replace(microsecond=0)
HERE = PodContext(runtime="process", ip="10.0.0.1")


def a_pod(restart: str = "Never", inits: str = "", status: PodStatus | None = None) -> Pod:
    return Pod(
        metadata=ObjectMeta(name="pi", namespace="default", uid="u-1", generation=3),
        spec=PodSpec(
            restart_policy=restart,
            init_containers=tuple(Container(name=name, image="i") for name in inits),
            containers=(Container(name="m", image="perl:5"),),
        ),
        status=status or PodStatus(phase="Pending", qos_class="BestEffort"),
    )


def running(attempt: int = 0, name: str = "m") -> Run:
    return Run(name, attempt, "running", "c1", NOW)


def ended(code: int | None, attempt: int = 0, name: str = "m", **more) -> Run:
    return Run(name, attempt, "exited", "c1", NOW, NOW, code)._replace(**more)


def status(pod: Pod, *runs: Run, now: datetime = NOW) -> PodStatus:
    return plan(pod, runs, now, HERE).status


def conditions(of: PodStatus) -> dict[str, str]:
    return {each.type: " ".join(filter(None, (each.status, each.reason))) for each in of.conditions}


@pytest.mark.parametrize(
    ("inits", "runs", "expected"),
    [
        pytest.param("", [], "False; True; False ContainersNotReady", id="nothing has started"),
        pytest.param("", [running()], "True; True; True", id="all is running"),
        pytest.param("", [ended(0)], "False; True PodCompleted; False PodCompleted", id="it has succeeded"),
        pytest.param("", [ended(1)], "False; True; False PodFailed", id="it has failed"),
        pytest.param(
            "a",
            [running(name="a")],
            "True; False ContainersNotInitialized; False ContainersNotReady",
            id="an init container is running",
        ),
    ],
)
def test_conditions_when(inits: str, runs: list[Run], expected: str) -> None:
    found = conditions(status(a_pod(inits=inits), *runs))

    assert "; ".join(found[kind] for kind in ("PodReadyToStartContainers", "Initialized", "Ready")) == expected
    assert found["ContainersReady"] == found["Ready"]


def test_conditions_name_the_containers() -> None:
    messages = {each.type: each.message for each in status(a_pod(inits="ab")).conditions}

    assert messages["Initialized"] == "containers with incomplete status: [a b]"
    assert messages["Ready"] == "containers with unready status: [m]"


def test_a_condition_keeps_its_time_until_it_changes() -> None:
    first = status(a_pod(), running())
    later = NOW + timedelta(minutes=1)
    second = status(a_pod(status=first), running(), now=later)
    third = status(a_pod(status=second), ended(0), now=later)

    assert second == first
    times = {each.type: each.last_transition_time for each in third.conditions}
    assert times["Initialized"] == WHOLE
    assert times["Ready"] == later.replace(microsecond=0)


def test_what_others_wrote_is_kept() -> None:
    foreign = (Condition(type="PodScheduled", status="True"), Condition(type="DisruptionTarget", status="True"))

    found = status(a_pod(status=PodStatus(conditions=foreign, qos_class="Burstable")), running())

    assert found.conditions[-2:] == foreign
    assert found.qos_class == "Burstable"


def test_addresses_times_and_generation() -> None:
    found = status(a_pod(), running())

    assert (found.host_ip, found.pod_ip) == ("10.0.0.1", "10.0.0.1")
    assert [each.ip for each in (*found.host_ips, *found.pod_ips)] == ["10.0.0.1", "10.0.0.1"]
    assert found.start_time == WHOLE
    assert found.observed_generation is None  # as long as PodObservedGenerationTracking is off


def test_a_pod_has_no_address_before_it_has_a_sandbox() -> None:
    assert status(a_pod()).pod_ip == ""


def test_a_running_container() -> None:
    (found,) = status(a_pod(), running()).container_statuses

    assert found.state.running.started_at == WHOLE
    assert (found.ready, found.started, found.restart_count) == (True, True, 0)
    assert (found.image, found.image_id, found.container_id) == ("perl:5", "perl:5", "process://c1")


@pytest.mark.parametrize(
    ("run", "code", "reason"),
    [
        pytest.param(ended(0), 0, "Completed", id="succeeded"),
        pytest.param(ended(3), 3, "Error", id="failed"),
        pytest.param(ended(137, reason="OOMKilled"), 137, "OOMKilled", id="ran out of memory"),
        pytest.param(ended(127, reason="StartError"), 127, "StartError", id="could not be started"),
        pytest.param(ended(None), 137, "ContainerStatusUnknown", id="ended nobody knows how"),
    ],
)
def test_a_container_that(run: Run, code: int, reason: str) -> None:
    (found,) = status(a_pod(), run).container_statuses

    assert (found.state.terminated.exit_code, found.state.terminated.reason) == (code, reason)
    assert (found.ready, found.started) == (False, False)
    assert found.state.terminated.container_id == "process://c1"


def test_a_container_never_ends_before_it_began() -> None:
    early = ended(0, finished_at=NOW - timedelta(seconds=2))

    (found,) = status(a_pod(), early).container_statuses

    assert found.state.terminated.finished_at == found.state.terminated.started_at == WHOLE


def test_a_crash_loop() -> None:
    (found,) = status(a_pod("OnFailure"), ended(1), ended(2, attempt=1)).container_statuses

    assert found.state.waiting.reason == "CrashLoopBackOff"
    assert found.state.waiting.message == "back-off 10s restarting failed container=m pod=pi_default(u-1)"
    assert found.last_state.terminated.exit_code == 2
    assert found.restart_count == 1


def test_a_restarted_container_tells_of_its_last_run() -> None:
    (found,) = status(a_pod("OnFailure"), ended(1), running(attempt=1)).container_statuses

    assert found.last_state.terminated.exit_code == 1
    assert (found.restart_count, found.ready) == (1, True)


@pytest.mark.parametrize(
    ("inits", "reason"),
    [
        pytest.param("", "ContainerCreating", id="without init containers"),
        pytest.param("a", "PodInitializing", id="with init containers"),
    ],
)
def test_a_container_that_waits(inits: str, reason: str) -> None:
    found = status(a_pod(inits=inits))

    assert found.container_statuses[0].state.waiting.reason == reason
    assert pod_status.is_only_starting(found)


def test_a_finished_init_container_is_ready() -> None:
    found = status(a_pod(inits="a"), ended(0, name="a"), running())

    assert found.init_container_statuses[0].ready
    assert found.phase == "Running"


@pytest.mark.parametrize(("seconds", "words"), [(10, "10s"), (80, "1m20s"), (300, "5m0s")])
def test_spans_are_spelled_as_go_does(seconds: int, words: str) -> None:
    assert pod_status.format_duration(timedelta(seconds=seconds)) == words


class TestMerged:
    def test_our_word_stands_with_the_conditions_of_others(self) -> None:
        ours = status(a_pod(), running())
        theirs = PodStatus(phase="Pending", conditions=(Condition(type="DisruptionTarget", status="True"),))

        found = pod_status.merge_status(ours, theirs)

        assert found.phase == "Running"
        assert "DisruptionTarget" in conditions(found)

    def test_an_end_that_others_declared_stands(self) -> None:
        theirs = PodStatus(phase="Failed", reason="NodeLost")

        assert pod_status.merge_status(status(a_pod(), running()), theirs) is theirs

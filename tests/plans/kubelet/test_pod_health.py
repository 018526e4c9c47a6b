"""What a node does about a pod when probes, hooks or its sandbox have something to say."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from app.kinds.pod.container import Container
from app.kinds.pod.pod import Pod, PodStatus
from app.kinds.pod.probe import ExecAction, Probe
from app.plans.kubelet.container_history import Past, Run
from app.plans.kubelet.pod_status import PodContext, SetupDelay
from app.plans.kubelet.probes import Health, ResultRun, Unhealthy, apply_threshold
from app.plans.kubelet.sync_pod import LEAST_GRACE, Key, PodPlan, plan
from tests.plans.kubelet.test_sync_pod import NOW, a_pod, runs, said, waiting

PROBE = Probe(exec=ExecAction(command=("ok?",)), success_threshold=2, failure_threshold=3)
ILL = Health(unwell=Unhealthy("Container m failed liveness probe"))


def here(**known: object) -> PodContext:
    return PodContext(runtime="process", ip="10.0.0.1", **known)


def probed(pod: Pod, **probes: Probe) -> Pod:
    """Every container has these probes."""
    spec = pod.spec
    containers, inits = (
        tuple(Container(name=each.name, image="i", restart_policy=each.restart_policy, **probes) for each in group)
        for group in (spec.containers, spec.init_containers)
    )
    return replace(pod, spec=replace(spec, containers=containers, init_containers=inits))


def status_of(result: PodPlan, name: str = "m"):
    everyone = (*result.status.init_container_statuses, *result.status.container_statuses)
    return next(each for each in everyone if each.name == name)


@pytest.mark.parametrize(
    ("pod", "seen", "known", "expected"),
    [
        pytest.param({}, "m0+", {"health": {("m", 0): ILL}}, "stop m0 in 30, Running", id="stops who is not alive"),
        pytest.param({}, "m0+", {"health": {("m", 1): ILL}}, "Running", id="does not mind another run's health"),
        pytest.param({}, "m0+", {"sandbox_lost": True}, "stop m0 in 2, Running", id="stops what is in a torn sandbox"),
        pytest.param(
            {"restart": "Always"}, "m0=1", {"sandbox_lost": True}, "Running", id="starts nothing in a torn sandbox"
        ),
        pytest.param(
            {"restart": "OnFailure"},
            "m0=0",
            {"past": Past(probe_failed={("m", 0)})},
            "start m1, Running",
            id="starts again who was not alive, even if it ends well",
        ),
        pytest.param(
            {"restart": "Never"},
            "m0=0",
            {"past": Past(probe_failed={("m", 0)})},
            "remove, Succeeded",
            id="starts nobody again that never is",
        ),
        pytest.param(
            {"restart": "OnFailure", "inits": "ab"},
            "a0=0 b0=0 m0=1",
            {"past": Past(lost={"a": 0, "b": 0, "m": 0})},
            "start a1, Pending",
            id="begins with the init containers in a new sandbox",
        ),
        pytest.param(
            {"restart": "OnFailure", "inits": "ab"},
            "a1=0 b0=0 m0=1",
            {"past": Past(lost={"a": 0, "b": 0, "m": 0})},
            "start b1, Pending",
            id="goes on with the next of them",
        ),
        pytest.param(
            {"restart": "OnFailure", "inits": "ab"},
            "a1=0 b1=0 m0=1",
            {"past": Past(lost={"a": 0, "b": 0, "m": 0})},
            "start m1, Running",
            id="and then with the others",
        ),
        pytest.param(
            {"restart": "OnFailure", "inits": "a"},
            "a0=0 m0=0",
            {"past": Past(lost={"a": 0, "m": 0})},
            "remove, Succeeded",
            id="begins nothing where all has been done",
        ),
        pytest.param(
            {"restart": "Always", "inits": "a", "sidecars": "s"},
            "a1=0 s0=137 m0=137",
            {"past": Past(lost={"a": 0, "s": 0, "m": 0})},
            "start s1, Pending",
            id="has its sidecars again first",
        ),
        pytest.param(
            {"apps": "mn"}, "m0+", {"post_start_pending": {("m", 0)}}, "Pending", id="waits for a hook before the next"
        ),
        pytest.param({"apps": "mn"}, "", {"busy": {"m"}}, "start n0, Pending", id="does not wait for a pull"),
        pytest.param({"inits": "a"}, "", {"busy": {"a"}}, "Pending", id="waits for an init container's pull"),
    ],
)
def test_plan(pod: dict, seen: str, known: dict, expected: str) -> None:
    restart = pod.pop("restart", "Never")
    assert said(plan(probed(a_pod(restart, **pod), liveness_probe=PROBE), runs(seen), NOW, here(**known))) == expected


def test_which_init_containers_ran_in_a_lost_sandbox_is_seen_without_memory() -> None:
    seen = [
        Run("a", 1, "exited", "a1", NOW - timedelta(seconds=4), NOW, 0),
        Run("b", 0, "exited", "b0", NOW - timedelta(seconds=60), NOW - timedelta(seconds=59), 0),
        Run("m", 0, "exited", "m0", NOW - timedelta(seconds=58), NOW - timedelta(seconds=30), 137),
    ]
    assert said(plan(a_pod("OnFailure", inits="ab"), seen, NOW, here())) == "start b1, Pending"
    again = Run("b", 1, "exited", "b1", NOW - timedelta(seconds=3), NOW, 0)
    assert said(plan(a_pod("OnFailure", inits="ab"), [*seen, again], NOW, here())) == "start m1, Running"


def test_a_probe_may_shorten_the_grace() -> None:
    ill = Health(unwell=Unhealthy("no", timedelta(seconds=4)))
    result = plan(probed(a_pod(), liveness_probe=PROBE), runs("m0+"), NOW, here(health={("m", 0): ill}))
    assert [(stop.key, stop.grace, stop.why) for stop in result.stop] == [(Key("m", 0), timedelta(seconds=4), "no")]


@pytest.mark.parametrize(
    ("health", "started", "ready"),
    [
        pytest.param(None, False, False, id="nothing before a probe has answered"),
        pytest.param(Health(started=True, ready=False), True, False, id="started before it is ready"),
        pytest.param(Health(started=True, ready=True), True, True, id="ready in the end"),
        pytest.param(Health(started=False, ready=True), False, False, id="not ready before it has started"),
    ],
)
def test_a_container_is(health: Health | None, started: bool, ready: bool) -> None:
    pod = probed(a_pod(), startup_probe=PROBE, readiness_probe=PROBE)
    known = {"health": {("m", 0): health}} if health else {}
    shown = status_of(plan(pod, runs("m0+"), NOW, here(**known)))
    assert (shown.started, shown.ready) == (started, ready)


def test_apps_wait_for_a_sidecar_to_be_started_even_if_it_crashes_meanwhile() -> None:
    pod = probed(a_pod(sidecars="s"), startup_probe=PROBE)
    assert said(plan(pod, runs("s0+"), NOW, here())) == "Pending"
    assert said(plan(pod, runs("s0=1"), NOW, here())) == "start s1, Pending"
    assert said(plan(pod, runs("s0+"), NOW, here(health={("s", 0): Health()}))) == "start m0, Pending"


def test_a_hook_hides_its_container_and_says_so_if_it_fails() -> None:
    key = ("m", 0)
    under_way = plan(a_pod(), runs("m0+"), NOW, here(post_start_pending={key}))
    failed = plan(a_pod(), runs("m0+"), NOW, here(post_start_pending={key}, health={key: ILL}))
    assert (under_way.status.phase, waiting(under_way)) == ("Pending", "ContainerCreating")
    assert (waiting(failed), len(failed.stop)) == ("PostStartHookError", 1)


def test_what_is_held_without_a_reason_is_just_about_to_start() -> None:
    result = plan(a_pod(), [], NOW, here(held={"m": SetupDelay("", "", NOW + timedelta(seconds=10))}))
    assert (said(result), waiting(result)) == ("Pending", "ContainerCreating")
    assert result.again_at == NOW + timedelta(seconds=10)


def test_sidecars_go_one_by_one_and_share_the_grace() -> None:
    first = plan(a_pod(sidecars="st"), runs("s0+ t0+ m0=0"), NOW, here())
    late = plan(a_pod(sidecars="st"), runs("s0+ t0=143 m0=0"), NOW + timedelta(seconds=29), here())
    assert said(first) == "stop t0 in 30, Running"
    assert [stop.key.name for stop in late.stop] == ["s"]
    assert late.stop[0].grace == LEAST_GRACE


def test_a_pod_has_the_address_of_its_sandbox() -> None:
    told = PodStatus(phase="Running", pod_ip="10.1.0.1", start_time=NOW)
    result = plan(a_pod(status=told), runs("m0+"), NOW, here(pod_ip="10.1.0.2"))
    assert (result.status.pod_ip, result.status.pod_ips[0].ip, result.status.host_ip) == (
        "10.1.0.2",
        "10.1.0.2",
        "10.0.0.1",
    )


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        pytest.param("", None, id="nothing at first"),
        pytest.param("+", None, id="nothing before it was said often enough"),
        pytest.param("++", True, id="well after two answers"),
        pytest.param("--", None, id="nothing after two failures"),
        pytest.param("---", False, id="ill after three"),
        pytest.param("--+--", None, id="nothing if they are not in a row"),
        pytest.param("---++", True, id="well again"),
    ],
)
def test_answers_say(answers: str, expected: bool | None) -> None:
    tally = ResultRun()
    for answer in answers:
        tally = tally.heard(answer == "+")
    assert apply_threshold(tally, PROBE) is expected

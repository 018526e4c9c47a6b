"""What a node does about a pod: tables of situations, and what must hold in every history."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as some
from msgspec.structs import replace

from app.kinds.pod.container import Container
from app.kinds.pod.pod import Pod, PodSpec, PodStatus
from app.machinery.base import ObjectMeta
from app.plans.kubelet.container_history import Run
from app.plans.kubelet.pod_status import PodContext, SetupDelay
from app.plans.kubelet.sync_pod import Key, PodPlan, plan

NOW = datetime(2026, 1, 31, 12, 0, 0, tzinfo=UTC)
HERE = PodContext(runtime="process", ip="10.0.0.1")


def a_pod(
    restart: str = "Never",
    apps: str = "m",
    inits: str = "",
    sidecars: str = "",
    *,
    grace: int | None = None,
    deleted: bool = False,
    deadline: int | None = None,
    status: PodStatus | None = None,
) -> Pod:
    return Pod(
        metadata=ObjectMeta(
            name="pi",
            namespace="default",
            uid="u-1",
            deletion_timestamp=NOW if deleted else None,
            deletion_grace_period_seconds=grace if deleted else None,
        ),
        spec=PodSpec(
            restart_policy=restart,
            active_deadline_seconds=deadline,
            termination_grace_period_seconds=grace,
            init_containers=(
                *(Container(name=name, image="i") for name in inits),
                *(Container(name=name, image="i", restart_policy="Always") for name in sidecars),
            ),
            containers=tuple(Container(name=name, image="i") for name in apps),
        ),
        status=status or PodStatus(phase="Pending", start_time=NOW),
    )


def runs(text: str) -> list[Run]:
    """`m0=1 s0+`: run 0 of m ended with code 1 this moment, run 0 of s runs. `m0?` has ended nobody knows how."""
    return [_run(word) for word in text.split()]


def _run(word: str) -> Run:
    name, attempt, how = word[0], int(word[1]), word[2:]
    began_at = NOW - timedelta(seconds=5)
    if how == "+":
        return Run(name, attempt, "running", f"{name}{attempt}", began_at)
    if how == ".":
        return Run(name, attempt, "created", f"{name}{attempt}")
    code = None if how == "?" else int(how[1:])
    return Run(name, attempt, "exited", f"{name}{attempt}", began_at, NOW, code)


def said(result: PodPlan) -> str:
    """The plan as a sentence."""
    start = [f"start {name}{attempt}" for name, attempt in result.start]
    stop = [f"stop {key.name}{key.attempt} in {int(grace.total_seconds())}" for key, grace, _ in result.stop]
    return ", ".join([*start, *stop, *(["remove"] if result.remove else []), result.status.phase])


def waiting(result: PodPlan, name: str = "m") -> str:
    found = [each for each in result.status.container_statuses if each.name == name]
    state = found[0].state
    return state.waiting.reason if state and state.waiting else ""


@pytest.mark.parametrize(
    ("pod", "seen", "expected"),
    [
        pytest.param({}, "", "start m0, Pending", id="starts what was never started"),
        pytest.param({"apps": "mn"}, "", "start m0, start n0, Pending", id="starts app containers together"),
        pytest.param({"apps": "mn"}, "m0+", "start n0, Pending", id="is Pending until all have started"),
        pytest.param({}, "m0.", "start m0, Pending", id="starts what was only created, as the same attempt"),
        pytest.param({}, "m0+", "Running", id="leaves a running container alone"),
        pytest.param({}, "m0=0", "remove, Succeeded", id="succeeds with exit code 0"),
        pytest.param({}, "m0=1", "remove, Failed", id="fails with another exit code"),
        pytest.param({}, "m0?", "remove, Failed", id="fails if nobody knows the exit code"),
        pytest.param({"apps": "mn"}, "m0=1 n0+", "Running", id="runs on while one container does"),
        pytest.param({"apps": "mn"}, "m0=1 n0=0", "remove, Failed", id="fails if any container failed"),
        pytest.param({"restart": "OnFailure"}, "m0=1", "start m1, Running", id="restarts a failure at once, once"),
        pytest.param({"restart": "OnFailure"}, "m0=1 m1=1", "Running", id="waits before it restarts again"),
        pytest.param({"restart": "OnFailure"}, "m0=1 m1=0", "remove, Succeeded", id="succeeds after a restart"),
        pytest.param({"restart": "Always"}, "m0=0", "start m1, Running", id="restarts always"),
        pytest.param({"inits": "ab"}, "", "start a0, Pending", id="starts the first init container alone"),
        pytest.param({"inits": "ab"}, "a0+", "Pending", id="lets an init container finish"),
        pytest.param({"inits": "ab"}, "a0=0", "start b0, Pending", id="goes on with the next init container"),
        pytest.param({"inits": "ab"}, "a0=0 b0=0", "start m0, Pending", id="starts apps after all init containers"),
        pytest.param({"inits": "ab"}, "a0=2", "remove, Failed", id="fails with an init container"),
        pytest.param({"inits": "a", "restart": "Always"}, "a0=2", "start a1, Pending", id="retries an init container"),
        pytest.param(
            {"inits": "a", "restart": "Always"}, "a0=0", "start m0, Pending", id="runs an init container once"
        ),
        pytest.param({"sidecars": "s"}, "", "start s0, Pending", id="starts a sidecar first"),
        pytest.param({"sidecars": "s"}, "s0+", "start m0, Pending", id="starts apps beside a sidecar"),
        pytest.param({"sidecars": "s"}, "s0=1 m0+", "start s1, Running", id="restarts a sidecar"),
        pytest.param({"sidecars": "s"}, "s0+ m0=0", "stop s0 in 30, Running", id="stops a sidecar last"),
        pytest.param({"sidecars": "s"}, "s0=143 m0=0", "remove, Succeeded", id="does not count a sidecar's code"),
        pytest.param({"deleted": True, "grace": 7}, "m0+", "stop m0 in 7, Running", id="stops what is deleted"),
        pytest.param(
            {"deleted": True, "grace": 0}, "m0+", "stop m0 in 0, Running", id="kills what is deleted by force"
        ),
        pytest.param({"deleted": True}, "m0=143", "remove, Failed", id="is gone when its containers are"),
        pytest.param({"deleted": True}, "m0=0", "remove, Succeeded", id="may succeed although it is deleted"),
        pytest.param({"deleted": True}, "", "remove, Failed", id="does not start what is deleted"),
        pytest.param(
            {"deleted": True, "restart": "Always"}, "m0=1", "remove, Failed", id="does not restart what is deleted"
        ),
        pytest.param(
            {"deleted": True, "sidecars": "s"}, "s0+ m0+", "stop m0 in 30, Running", id="stops apps before sidecars"
        ),
    ],
)
def test_plan(pod: dict, seen: str, expected: str) -> None:
    assert said(plan(a_pod(**pod), runs(seen), NOW, HERE)) == expected


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
@pytest.mark.parametrize("seen", ["", "m0=0", "m0."])
def test_a_pod_that_has_ended_starts_nothing(phase: str, seen: str) -> None:
    result = plan(a_pod("Always", status=PodStatus(phase=phase)), runs(seen), NOW, HERE)

    assert said(result) == f"remove, {phase}"


def test_spans_without_measure_are_as_good_as_for_ever() -> None:
    ending = plan(a_pod(deleted=True, grace=2**63 - 1), runs("m0+"), NOW, HERE)
    running = plan(a_pod(deadline=2**63 - 1), runs("m0+"), NOW, HERE)

    assert all(stop.grace > timedelta(days=100_000) for stop in ending.stop)
    assert ending.stop
    assert running.again_at
    assert running.again_at > NOW + timedelta(days=100_000)


def test_what_still_runs_of_a_pod_that_has_ended_is_stopped() -> None:
    result = plan(a_pod(status=PodStatus(phase="Failed")), runs("m0+"), NOW, HERE)

    assert said(result) == "stop m0 in 2, Failed"


@pytest.mark.parametrize(
    ("attempts", "seconds"),
    [pytest.param(n, s, id=f"restart {n + 1} after {s} s") for n, s in enumerate([0, 10, 20, 40, 80, 160, 300, 300])],
)
def test_backs_off(attempts: int, seconds: int) -> None:
    last = Run("m", attempts, "exited", "x", NOW - timedelta(seconds=1), NOW, 1)

    result = plan(a_pod("OnFailure"), [last], NOW, HERE)

    assert (result.again_at or NOW) - NOW == timedelta(seconds=seconds)
    assert bool(result.start) is (seconds == 0)
    assert waiting(result) == ("CrashLoopBackOff" if seconds else "")


def test_back_off_begins_anew_after_ten_minutes_of_running() -> None:
    long = Run("m", 6, "exited", "x", NOW - timedelta(minutes=10), NOW, 1)
    short = Run("m", 7, "exited", "x", NOW, NOW, 1)

    assert said(plan(a_pod("OnFailure"), [long], NOW, HERE)) == "start m7, Running"
    assert plan(a_pod("OnFailure"), [long, short], NOW, HERE).again_at == NOW + timedelta(seconds=10)


def test_a_restart_count_of_any_size_waits_five_minutes() -> None:
    last = Run("m", 2**31 - 1, "exited", "x", NOW, NOW, 1)

    assert plan(a_pod("OnFailure"), [last], NOW, HERE).again_at == NOW + timedelta(minutes=5)


class TestDeadline:
    def test_stops_a_pod_that_runs_too_long(self) -> None:
        began = PodStatus(start_time=NOW - timedelta(seconds=60))

        result = plan(a_pod(deadline=60, grace=5, status=began), runs("m0+"), NOW, HERE)

        assert said(result) == "stop m0 in 5, Running"

    def test_fails_it_once_stopped(self) -> None:
        began = PodStatus(start_time=NOW - timedelta(seconds=61))

        result = plan(a_pod("OnFailure", deadline=60, status=began), runs("m0=143"), NOW, HERE)

        assert said(result) == "remove, Failed"
        assert result.status.reason == "DeadlineExceeded"
        assert result.status.message == "Pod was active on the node longer than the specified deadline"

    def test_is_looked_at_in_time(self) -> None:
        assert plan(a_pod(deadline=60), runs("m0+"), NOW, HERE).again_at == NOW + timedelta(seconds=60)

    def test_spares_a_pod_that_was_done_before(self) -> None:
        began = PodStatus(start_time=NOW - timedelta(seconds=60))

        result = plan(a_pod(deadline=60, status=began), runs("m0=0"), NOW + timedelta(hours=1), HERE)

        assert said(result) == "remove, Succeeded"


class TestCutOff:
    AWAY = PodContext(runtime="process", ip="10.0.0.1", cut_off=timedelta(seconds=7))

    @pytest.mark.parametrize(
        ("grace", "expected"),
        [
            pytest.param(600, "stop m0 in 7, Running", id="within what is left"),
            pytest.param(3, "stop m0 in 3, Running", id="within its grace if that is shorter"),
        ],
    )
    def test_stops_what_runs(self, grace: int, expected: str) -> None:
        assert said(plan(a_pod("OnFailure", grace=grace), runs("m0+"), NOW, self.AWAY)) == expected

    def test_stops_it_even_if_there_is_no_time_left(self) -> None:
        late = PodContext(runtime="process", ip="10.0.0.1", cut_off=timedelta())

        assert said(plan(a_pod("OnFailure"), runs("m0+"), NOW, late)) == "stop m0 in 0, Running"

    def test_has_no_time_to_stop_sidecars_last(self) -> None:
        result = plan(a_pod(deleted=True, sidecars="s"), runs("s0+ m0+"), NOW, self.AWAY)

        assert said(result) == "stop s0 in 7, stop m0 in 7, Running"

    @pytest.mark.parametrize("seen", ["", "m0=1"])
    def test_starts_nothing(self, seen: str) -> None:
        assert plan(a_pod("OnFailure"), runs(seen), NOW, self.AWAY).start == ()

    def test_marks_the_failure_as_not_the_pod_s_own(self) -> None:
        result = plan(a_pod(), runs("m0=143"), NOW, self.AWAY)

        assert said(result) == "remove, Failed"
        assert {"DisruptionTarget": "TerminationByKubelet"}.items() <= {
            each.type: each.reason for each in result.status.conditions
        }.items()


class TestHeld:
    HELD = PodContext(
        held={"m": SetupDelay("CreateContainerConfigError", 'secret "s" not found', NOW + timedelta(seconds=10))}
    )

    def test_waits_and_says_why(self) -> None:
        result = plan(a_pod(), [], NOW, self.HELD)

        assert said(result) == "Pending"
        assert waiting(result) == "CreateContainerConfigError"
        assert result.again_at == NOW + timedelta(seconds=10)

    def test_is_tried_again(self) -> None:
        assert said(plan(a_pod(), [], NOW + timedelta(seconds=10), self.HELD)) == "start m0, Pending"


class TestMemory:
    """What the runtime has forgotten is read back from the pod's status."""

    @pytest.mark.parametrize("seen", ["m0=3", "m0=3 m1=4", "m0=3 m1=4 m2=5"])
    def test_a_forgotten_history_gives_the_same_restart(self, seen: str) -> None:
        first = plan(a_pod("OnFailure"), runs(seen), NOW, HERE)
        again = plan(a_pod("OnFailure", status=first.status), [], NOW, HERE)

        assert (again.start, again.again_at) == (first.start, first.again_at)
        assert again.status == first.status

    def test_a_container_that_vanished_has_failed(self) -> None:
        running = plan(a_pod(), runs("m0+"), NOW, HERE).status

        result = plan(a_pod(status=running), [], NOW + timedelta(seconds=1), HERE)

        ended = result.status.container_statuses[0].state.terminated
        assert said(result) == "remove, Failed"
        assert (ended.exit_code, ended.reason) == (137, "ContainerStatusUnknown")

    def test_the_runtime_knows_better_than_the_status(self) -> None:
        running = plan(a_pod(), runs("m0+"), NOW, HERE).status

        assert said(plan(a_pod(status=running), runs("m0=0"), NOW, HERE)) == "remove, Succeeded"

    def test_an_end_without_a_time_is_given_one_that_stays(self) -> None:
        lost = Run("m", 1, "exited", "m1")

        first = plan(a_pod("OnFailure"), [lost], NOW, HERE)
        later = plan(a_pod("OnFailure", status=first.status), [lost], NOW + timedelta(seconds=4), HERE)

        assert first.again_at == later.again_at == NOW + timedelta(seconds=10)


@dataclass
class World:
    """A node that does as it is told, and remembers what that was."""

    pod: Pod
    now: datetime = NOW
    runs: dict[Key, Run] = field(default_factory=dict)
    started: list[Key] = field(default_factory=list)
    over: PodPlan | None = None

    def step(self) -> PodPlan:
        result = plan(self.pod, self.runs.values(), self.now, HERE)
        self.pod = replace(self.pod, status=result.status)
        for key in result.start:
            self.started.append(key)
            self.runs[key] = Run(*key, "running", f"{key.name}{key.attempt}", self.now)
        for key, *_ in result.stop:
            self.end(key, 143)
        if result.remove:
            self.over = self.over or result
        return result

    def end(self, key: Key, code: int) -> None:
        self.runs[key] = self.runs[key]._replace(state="exited", finished_at=self.now, exit_code=code)

    @property
    def live(self) -> list[Key]:
        return [key for key, run in self.runs.items() if run.state == "running"]


policies = some.sampled_from(["Always", "OnFailure", "Never"])
happenings = some.lists(some.tuples(some.sampled_from("ewfd"), some.integers(0, 3), some.integers(0, 2)), max_size=25)


@given(
    policy=policies,
    inits=some.sampled_from(["", "a", "ab"]),
    sidecars=some.sampled_from(["", "s"]),
    apps=some.sampled_from(["m", "mn"]),
    deadline=some.sampled_from([None, 30]),
    story=happenings,
)
def test_in_any_history(policy, inits, sidecars, apps, deadline, story) -> None:
    world = World(a_pod(policy, apps, inits, sidecars, deadline=deadline, status=PodStatus()))
    codes: dict[Key, int] = {}
    for what, which, code in story:
        world.step()
        if what == "e" and world.live:
            key = world.live[which % len(world.live)]
            world.end(key, code)
            codes[key] = code
        elif what == "w":
            world.now += timedelta(seconds=7 * (which + 1))
        elif what == "f":
            world.runs = {key: run for key, run in world.runs.items() if run.state == "running"}  # forgets what ended
        elif what == "d" and which == 0:
            world.pod = a_pod(policy, apps, inits, sidecars, deleted=True, deadline=deadline, status=world.pod.status)
        check(world, codes)
    settle(world, codes)


def check(world: World, codes: dict[Key, int]) -> None:
    assert len(world.started) == len(set(world.started)), "a container was started twice for the same attempt"
    if world.over:
        assert not world.live
        started = len(world.started)
        assert world.step().status == world.over.status
        assert len(world.started) == started, "a pod that had ended started something"
    for each in (*world.pod.status.container_statuses, *world.pod.status.init_container_statuses):
        ended = each.state.terminated if each.state else None
        if ended and ended.reason != "ContainerStatusUnknown":
            assert ended.exit_code == codes.get(Key(each.name, each.restart_count), 143)


def settle(world: World, codes: dict[Key, int]) -> None:
    """Liveness: with everything succeeding from here, a pod that may end does."""
    pod = world.pod
    for_ever = pod.spec.restart_policy == "Always" and not pod.metadata.deletion_timestamp
    for _ in range(40):
        result = world.step()
        if world.over:
            break
        for key in world.live:
            world.end(key, 0)
            codes[key] = 0
        world.now = max(world.now, result.again_at or world.now)
    assert world.over or (for_ever and pod.spec.active_deadline_seconds is None)
    check(world, codes)

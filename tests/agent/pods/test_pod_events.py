"""What the agent tells in events, and how what cannot be set up is shown."""

from datetime import UTC, datetime, timedelta

import pytest

from app.agent.pods.kubelet_events import BURST, COMBINED, MANY, EventRecorder
from app.kinds.pod.container import Container
from app.kinds.pod.volume import EmptyDirVolumeSource, SecretVolumeSource, Volume, VolumeMount
from app.machinery.base import OwnerReference
from app.plans.kubelet.pod_events import Note
from app.runtimes.base import CreateError, RuntimeInfo, StartError
from tests.agent.scene import Scene

NOW = datetime(2026, 1, 31, 12, 0, 0, 700_000, tzinfo=UTC)
CREATED, STARTED = ("Created", "Created container: main"), ("Started", "Started container main")
PROCESS = RuntimeInfo(name="process", version="1", survives_agent=True, host_programs=True)


async def test_a_pod_that_ran_has_told_so_with_its_status(scene: Scene) -> None:
    scene.start_agent()
    await scene.running()
    scene.runtime.exit(0)
    await scene.api.until(lambda: scene.runtime.removed)

    assert scene.told() == [CREATED, STARTED]
    assert {each["path"] for each in scene.api.events} == {"spec.containers{main}"}
    assert scene.api.journal == ["web Running", "web Succeeded"]


async def test_a_pod_of_host_programs_that_ends_at_once_is_told_of_once(scene: Scene) -> None:
    """Its clock stands still until it has ended."""
    scene.runtime.capabilities = PROCESS
    scene.start_agent()
    scene.api.bind()
    await scene.api.until(scene.runtime.was_started)
    scene.runtime.exit(0)
    await scene.api.until(lambda: scene.runtime.removed)

    assert [reason for reason in scene.reasons() if reason != "ImageNotUsed"] == ["Created", "Started"]
    assert scene.api.journal == ["web Succeeded"]


async def test_a_pod_of_host_programs_that_goes_on_is_told_of_while_it_runs(scene: Scene) -> None:
    scene.runtime.capabilities = PROCESS
    scene.start_agent()
    scene.api.bind()
    await scene.api.until(scene.runtime.was_started)
    await scene.api.until(lambda: scene.api.phase() == "Running", lambda: scene.clock.advance(0.01))
    scene.runtime.exit(0)
    await scene.api.until(lambda: scene.runtime.removed)

    assert scene.api.journal == ["web Running", "web Succeeded"]


async def test_a_runtime_of_host_programs_tells_once_for_a_controllers_pods_that_images_are_not_used(
    scene: Scene,
) -> None:
    scene.runtime.capabilities = PROCESS
    scene.start_agent()
    owner = OwnerReference(api_version="batch/v1", kind="Job", name="pi", uid="j-1", controller=True)
    for number in (1, 2):
        scene.api.bind(f"pi-{number}", f"u-{number}", metadata={"owner_references": (owner,)})
    await scene.api.until(lambda: scene.reasons().count("Started") == 2, scene.tick)

    (told,) = [each for each in scene.api.events if each["reason"] == "ImageNotUsed"]
    assert (told["type"], told["owner"]) == ("Warning", "j-1")
    assert ": i is only recorded, not pulled or run." in told["message"]
    assert "--runtime oci, cri or docker" in told["message"]


async def test_a_pod_that_was_made_without_an_image_tells_nothing_of_it(scene: Scene) -> None:
    """As `jobplane run` makes one: there is nothing to be surprised at."""
    scene.runtime.capabilities = PROCESS
    scene.start_agent()
    container = Container(name="main", image="none", command=("run",))
    scene.api.bind(containers=(container,))
    await scene.api.until(lambda: "Started" in scene.reasons(), scene.tick)

    assert "ImageNotUsed" not in scene.reasons()


async def test_a_pod_that_is_deleted_tells_that_it_is_stopped(scene: Scene) -> None:
    scene.start_agent()
    await scene.running()
    scene.api.delete()
    await scene.api.until(lambda: scene.runtime.removed)

    assert scene.told() == [CREATED, STARTED, ("Killing", "Stopping container main")]


async def test_back_off_is_told_once_a_wait(scene: Scene) -> None:
    scene.start_agent()
    await scene.running(restart_policy="OnFailure")
    scene.runtime.exit(1)
    await scene.api.until(lambda: scene.runtime.was_started(attempt=1))
    scene.runtime.exit(1, attempt=1)
    await scene.api.until(lambda: scene.waits_for() == "CrashLoopBackOff")
    scene.clock.advance(5)
    await scene.api.until(lambda: "BackOff" in scene.reasons())

    assert scene.told()[-1] == ("BackOff", "Back-off restarting failed container main in pod web_default(u-1)")
    assert scene.reasons().count("BackOff") == 1
    known = [each for each in scene.api.events if each.get("known")]
    assert [each["reason"] for each in known] == ["Created", "Started"]


async def test_a_deadline_that_has_passed_is_told(scene: Scene) -> None:
    scene.start_agent()
    await scene.running(active_deadline_seconds=5)
    scene.clock.advance(5)
    await scene.api.until(lambda: scene.api.phase() == "Failed")

    assert ("DeadlineExceeded", "Pod was active on the node longer than the specified deadline") in scene.told()


async def test_a_container_that_cannot_be_started_says_why(scene: Scene) -> None:
    scene.runtime.refusals["main"] = StartError("no such file", 127)
    scene.start_agent()
    scene.api.bind()
    await scene.api.until(lambda: scene.api.phase() == "Failed")

    assert scene.told() == [CREATED, ("Failed", "Error: no such file")]


async def test_a_container_that_cannot_be_created_waits_and_is_tried_again(scene: Scene) -> None:
    scene.runtime.refusals["main"] = CreateError("no command specified")
    scene.start_agent()
    scene.api.bind()
    await scene.api.until(lambda: scene.waits_for() == "CreateContainerError")

    assert scene.api.phase() == "Pending"
    assert scene.container().state.waiting.message == "no command specified"
    assert scene.told() == [("Failed", "Error: no command specified")]

    scene.runtime.refusals.clear()
    await scene.api.until(lambda: scene.api.phase() == "Running", scene.tick)


async def test_a_sandbox_that_cannot_be_made_is_told_of(scene: Scene) -> None:
    scene.runtime.sandbox_refusal = CreateError("no room")
    scene.start_agent()
    scene.api.bind()
    await scene.api.until(lambda: scene.api.events, scene.tick)

    assert scene.told()[0] == ("FailedCreatePodSandBox", "Failed to create pod sandbox: no room")
    assert scene.waits_for() == "ContainerCreating"

    scene.runtime.sandbox_refusal = None
    await scene.api.until(lambda: scene.api.phase() == "Running", scene.tick)


async def test_a_volume_that_is_not_ready_is_told_of(scene: Scene) -> None:
    mounts = (VolumeMount(name="v", mount_path="/v"), VolumeMount(name="s", mount_path="/s"))
    scene.start_agent()
    scene.api.bind(
        containers=(Container(name="main", image="i", command=("run",), volume_mounts=mounts),),
        volumes=(
            Volume(name="v", empty_dir=EmptyDirVolumeSource()),
            Volume(name="s", secret=SecretVolumeSource(secret_name="s")),
        ),
    )
    await scene.api.until(lambda: scene.api.events, scene.tick)

    assert scene.told()[0] == ("FailedMount", 'MountVolume.SetUp failed for volume "s" : secret "s" not found')
    assert scene.waits_for() == "ContainerCreating"


async def test_a_lost_sandbox_is_made_anew_and_its_containers_are_restarted(scene: Scene) -> None:
    scene.start_agent()
    await scene.running(restart_policy="Always")
    scene.runtime.standing.clear()
    await scene.api.until(lambda: scene.runtime.was_started(attempt=1), scene.tick)

    assert scene.runtime.standing == {"u-1"}
    assert [key for key, _ in scene.runtime.stops] == [scene.runtime.key()]
    assert ("SandboxChanged", "Pod sandbox changed, it will be killed and re-created.") in scene.told()


async def test_a_pod_that_never_restarts_fails_with_its_sandbox(scene: Scene) -> None:
    scene.start_agent()
    await scene.running()
    scene.runtime.standing.clear()
    await scene.api.until(lambda: scene.api.phase() == "Failed", scene.tick)

    assert len(scene.runtime.started) == 1


async def test_events_are_kept_until_the_api_is_back(scene: Scene) -> None:
    scene.start_agent()
    await scene.running()
    scene.api.go_away()
    scene.runtime.exit(1)
    scene.clock.advance(3)
    scene.api.down = False
    await scene.api.until(lambda: scene.api.phase() == "Failed", scene.tick)

    assert scene.told() == [CREATED, STARTED]


class TestEventRecorder:
    @pytest.fixture
    def telling(self) -> EventRecorder:
        return EventRecorder()

    def test_what_repeats_is_counted(self, telling: EventRecorder) -> None:
        for _ in range(3):
            telling.record(Note("Warning", "Unhealthy", "no"), NOW)
        (told,) = telling.take()
        assert (told.count, told.known, told.when) == (3, False, NOW.replace(microsecond=0))

        telling.record(Note("Warning", "Unhealthy", "no"), NOW)
        (told,) = telling.take()
        assert (told.count, told.known) == (1, True)

    def test_messages_that_differ_a_little_become_one(self, telling: EventRecorder) -> None:
        for number in range(MANY + 5):
            telling.record(Note("Warning", "Unhealthy", f"no {number}"), NOW)
        told = telling.take()
        assert len(told) == MANY + 1
        assert told[-1].message == f"{COMBINED}no {MANY + 4}"
        assert told[-1].count == 5

    def test_too_much_for_one_reason_is_left_out(self, telling: EventRecorder) -> None:
        for number in range(BURST + 10):
            telling.record(Note("Warning", "Unhealthy", "no"), NOW + timedelta(seconds=number))
        assert sum(each.count for each in telling.take()) == BURST

        telling.record(Note("Warning", "Unhealthy", "no"), NOW + timedelta(minutes=6))
        assert len(telling.take()) == 1

    def test_what_is_told_once_is_told_once(self, telling: EventRecorder) -> None:
        for once in ("main/0", "main/0", "main/1"):
            telling.record(Note("Warning", "BackOff", "again", "", once), NOW)
        assert telling.take()[0].count == 2

    def test_what_was_not_taken_is_told_again(self, telling: EventRecorder) -> None:
        telling.record(Note("Normal", "Started", "it runs"), NOW)
        untaken = telling.take()
        telling.put_back(untaken)
        assert telling.take() == untaken

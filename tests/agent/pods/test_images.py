"""Images on a runtime that has them: when they are pulled, with whose login, and what is shown when they cannot be."""

import base64
import json
import logging
from datetime import timedelta

import pytest

from app.agent.pods.pulled_images import PulledImages
from app.kinds.pod.container import Container, ContainerStateWaiting
from app.kinds.pod.pod_annotations import START_TIMEOUT
from app.machinery.base import LocalObjectReference
from app.runtimes.base import Image, Login, PullError, RuntimeInfo
from tests.agent.scene import Scene
from tests.log_lines import lines

BUSYBOX = "docker.io/library/busybox:1"
HERE = Image("sha256:" + "a" * 64, (BUSYBOX,), 1000)


@pytest.fixture
def scene(scene: Scene) -> Scene:
    scene.runtime.capabilities = RuntimeInfo(name="fake", version="1", survives_agent=True, images=True)
    return scene


def main(policy: str = "IfNotPresent", image: str = "busybox:1") -> tuple[Container, ...]:
    return (Container(name="main", image=image, image_pull_policy=policy, command=("run",)),)


async def test_an_image_that_is_missing_is_pulled(scene: Scene) -> None:
    scene.start_agent()
    await scene.running(containers=main())

    assert scene.runtime.pulls == [(BUSYBOX, None)]
    assert scene.reasons() == ["Pulling", "Pulled", "Created", "Started"]
    assert scene.container().image_id == scene.runtime.have[0].id


@pytest.mark.parametrize("policy", ["IfNotPresent", "Never"])
async def test_an_image_that_is_there_is_not_pulled(scene: Scene, policy: str) -> None:
    scene.runtime.have.append(HERE)
    scene.start_agent()
    await scene.running(containers=main(policy))

    assert scene.runtime.pulls == []
    assert scene.told()[0] == ("Pulled", 'Container image "busybox:1" already present on machine')
    assert scene.container().image_id == HERE.id


async def test_always_pulls_what_is_there_for_each_run(scene: Scene) -> None:
    scene.runtime.have.append(HERE)
    scene.start_agent()
    await scene.running(containers=main("Always"), restart_policy="OnFailure")
    scene.runtime.exit(1)
    await scene.api.until(lambda: scene.runtime.was_started(attempt=1))

    assert len(scene.runtime.pulls) == 2


async def test_a_container_may_not_pull(scene: Scene) -> None:
    scene.start_agent()
    scene.api.bind(containers=main("Never"))
    await scene.api.until(lambda: scene.waits_for() == "ErrImageNeverPull")

    assert scene.reasons() == ["ErrImageNeverPull", "Failed"]
    assert scene.api.phase() == "Pending"


async def test_a_name_that_is_none_is_refused(scene: Scene) -> None:
    scene.start_agent()
    scene.api.bind(containers=main(image="Not An Image"))
    await scene.api.until(lambda: scene.waits_for() == "InvalidImageName")

    assert scene.reasons() == ["InspectFailed", "Failed"]


async def test_a_pull_that_fails_is_shown_and_tried_again_ever_later(scene: Scene) -> None:
    scene.runtime.unpullable[BUSYBOX] = PullError("not found")
    scene.start_agent()
    scene.api.bind(containers=main())
    await scene.api.until(lambda: scene.waits_for() == "ErrImagePull")
    assert scene.container().state.waiting.message == "not found"
    await scene.api.until(lambda: scene.waits_for() == "ImagePullBackOff", scene.tick)
    message = scene.container().state.waiting.message
    assert message == 'Back-off pulling image "busybox:1": ErrImagePull: not found'
    assert len(scene.runtime.pulls) == 1

    began = scene.clock.elapsed()
    await scene.api.until(lambda: len(scene.runtime.pulls) == 2, scene.tick)
    assert scene.clock.elapsed() - began <= 10
    began = scene.clock.elapsed()
    await scene.api.until(lambda: len(scene.runtime.pulls) == 3, scene.tick)
    assert scene.clock.elapsed() - began >= 19

    scene.runtime.unpullable.clear()
    await scene.api.until(lambda: scene.api.phase() == "Running", scene.tick)
    assert {"Pulling", "Failed", "BackOff", "Pulled", "Created", "Started"} <= set(scene.reasons())


async def test_an_engine_that_is_away_is_no_fault_of_ours(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    scene.runtime.unpullable[BUSYBOX] = ConnectionError("the container engine does not answer")
    scene.start_agent()
    scene.api.bind(containers=main())
    await scene.api.until(lambda: scene.waits_for() == "ErrImagePull")

    assert scene.container().state.waiting.message == "the container engine does not answer"
    logged = [each for each in caplog.records if each.name == "app.agent.pods.images"]
    assert {each.exc_info for each in logged} == {None}
    assert len(lines(caplog, logging.WARNING)) == 1


async def test_one_pull_serves_all_who_wait_for_it(scene: Scene) -> None:
    scene.start_agent()
    for number in range(5):
        scene.api.bind(f"p{number}", f"u-{number}", containers=main())
    await scene.api.until(lambda: all(scene.api.phase(uid) == "Running" for uid in scene.api.pods))

    assert len(scene.runtime.pulls) <= 2


async def test_the_login_comes_from_the_pods_secrets(scene: Scene) -> None:
    auth = base64.b64encode(b"me:hush").decode()
    config = json.dumps({"auths": {"https://index.docker.io/v1/": {"auth": auth}, "quay.io": {"auth": auth}}}).encode()
    path = "/api/v1/namespaces/default/secrets/login"
    scene.api.objects[path] = {"data": {".dockerconfigjson": base64.b64encode(config).decode()}}
    scene.start_agent()
    secrets = (LocalObjectReference(name="login"), LocalObjectReference(name="none"))
    await scene.running(containers=main(), image_pull_secrets=secrets)

    assert scene.runtime.pulls == [(BUSYBOX, Login("me", "hush"))]
    assert "FailedToRetrieveImagePullSecret" in scene.reasons()


async def test_a_pod_that_pulls_can_be_deleted(scene: Scene) -> None:
    scene.runtime.unpullable[BUSYBOX] = PullError("not found")
    scene.start_agent()
    scene.api.bind(containers=main())
    await scene.api.until(scene.waits_for)
    scene.api.delete()
    await scene.api.until(lambda: scene.api.phase() == "gone")
    scene.clock.advance(timedelta(minutes=10).total_seconds())

    assert scene.runtime.started == []


@pytest.mark.parametrize("is_endless", [True, False], ids=["the pull does not end", "the pull fails"])
async def test_a_pod_that_does_not_start_in_time_fails(scene: Scene, *, is_endless: bool) -> None:
    if is_endless:
        scene.runtime.endless.add(BUSYBOX)
    else:
        scene.runtime.unpullable[BUSYBOX] = PullError("not found")
    scene.start_agent()
    scene.api.bind(containers=main(), metadata={"annotations": {START_TIMEOUT: "10m"}})
    await scene.api.until(lambda: scene.runtime.pulls)
    await scene.passes(590)
    assert scene.api.phase() == "Pending"
    await scene.api.until(lambda: scene.api.phase() == "Failed", scene.tick)

    assert scene.api.status().reason == "StartTimeout"
    why = "main" if is_endless else "main (ImagePullBackOff: "
    assert scene.api.status().message.startswith(f"Containers did not start within 10m: {why}")
    assert ("StartTimeout", scene.api.status().message) in scene.told()
    await scene.api.until(lambda: not scene.runtime.standing, scene.tick)
    assert scene.runtime.started == []


def give_login(scene: Scene, name: str, password: str) -> tuple[LocalObjectReference]:
    auth = base64.b64encode(f"me:{password}".encode()).decode()
    config = json.dumps({"auths": {"https://index.docker.io/v1/": {"auth": auth}}}).encode()
    path = f"/api/v1/namespaces/default/secrets/{name}"
    scene.api.objects[path] = {"data": {".dockerconfigjson": base64.b64encode(config).decode()}}
    return (LocalObjectReference(name=name),)


def waiting(scene: Scene, uid: str) -> ContainerStateWaiting:
    """What the only container of a pod waits for."""
    for each in scene.api.status(uid).container_statuses:
        if each.state and each.state.waiting:
            return each.state.waiting
    return ContainerStateWaiting()


async def test_an_image_that_was_pulled_with_a_login_is_not_everybodys(scene: Scene) -> None:
    mine, others = give_login(scene, "mine", "hush"), give_login(scene, "others", "guessed")
    scene.start_agent()
    await scene.running(containers=main(), image_pull_secrets=mine)
    await scene.stop_agent()
    assert "hush" not in (scene.folder / "pulled-images.json").read_text()

    scene.start_agent()  # another agent process knows, too
    scene.runtime.unpullable[BUSYBOX] = PullError("denied")
    scene.api.bind("none", "u-none", containers=main())
    scene.api.bind("others", "u-others", containers=main(), image_pull_secrets=others)
    scene.api.bind("never", "u-never", containers=main("Never"))
    scene.api.bind("mine", "u-mine", containers=main(), image_pull_secrets=mine)
    await scene.api.until(lambda: scene.api.phase("u-mine") == "Running")
    await scene.api.until(
        lambda: waiting(scene, "u-none").reason == waiting(scene, "u-others").reason == "ErrImagePull"
    )
    await scene.api.until(lambda: waiting(scene, "u-never").reason == "ErrImageNeverPull")
    assert "a login that this pod does not have" in waiting(scene, "u-never").message

    assert sorted(scene.runtime.pulls[1:], key=str) == [(BUSYBOX, Login("me", "guessed")), (BUSYBOX, None)]


async def test_whoever_the_registry_lets_pull_may_use_an_image(scene: Scene) -> None:
    mine, others = give_login(scene, "mine", "hush"), give_login(scene, "others", "known, too")
    scene.start_agent()
    await scene.running(containers=main(), image_pull_secrets=mine)
    for number in range(2):
        scene.api.bind(f"o{number}", f"u-o{number}", containers=main(), image_pull_secrets=others)
        await scene.api.until(lambda number=number: scene.api.phase(f"u-o{number}") == "Running")

    assert scene.runtime.pulls == [(BUSYBOX, Login("me", "hush")), (BUSYBOX, Login("me", "known, too"))]

    scene.api.bind("open", "u-open", containers=main())
    await scene.api.until(lambda: scene.api.phase("u-open") == "Running")
    scene.api.bind("never", "u-never", containers=main("Never"))
    await scene.api.until(lambda: scene.api.phase("u-never") == "Running")


async def test_an_image_whose_pull_was_cut_off_is_not_everybodys(scene: Scene) -> None:
    PulledImages(scene.folder / "pulled-images.json").begin(BUSYBOX)
    scene.runtime.have.append(HERE)
    scene.start_agent()
    await scene.running(containers=main())

    assert scene.runtime.pulls == [(BUSYBOX, None)]

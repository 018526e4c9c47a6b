"""What runtimes with images promise of them: pulls and their refusals, what there is, what may be removed."""

import uuid
from collections.abc import Iterator
from datetime import timedelta

import pytest

from app.runtimes.base import CreateError, Image, Login, PullError, Security
from tests.runtimes.conftest import FOREVER, Behaviour, Lab, a_key, raw, script
from tests.runtimes.images import IMAGE, Built, built
from tests.runtimes.registry import Registry, registry

pytestmark = pytest.mark.needs("images")


@pytest.fixture(name="registry", scope="module")
def _registry() -> Iterator[Registry]:
    with registry() as made:
        yield made


@pytest.fixture
def image() -> Built:
    """One that no other test has."""
    return built(("/bin/echo", "from", "the", "image"), Labels={"test": uuid.uuid4().hex})


async def held(lab: Lab, name: str) -> Image | None:
    return next((each for each in await lab.runtime.images() if name in each.names), None)


async def test_what_there_is_is_told(lab: Lab) -> None:
    found = await held(lab, IMAGE)

    assert found
    assert found.id.startswith("sha256:")
    assert found.size > 1_000_000


async def test_an_image_is_pulled_run_and_removed(lab: Lab, registry: Registry, image: Built) -> None:
    name = registry.add("some/image", image)
    pulled = await lab.runtime.pull(name)
    found = await held(lab, name)
    assert found
    assert found.id == pulled == image.id

    status = await lab.run(Behaviour([], {}), image=name)
    assert raw(await lab.log(status.key)) == b"from the image\n"
    await lab.runtime.remove_sandbox(status.key.pod_uid)
    for _ in range(2):
        await lab.runtime.remove_image(pulled)
    assert await held(lab, name) is None


@pytest.mark.needs("security")
async def test_an_image_s_user_is_told_and_kept(lab: Lab, registry: Registry) -> None:
    for number, (user, told) in enumerate({"": "0", "worker": "1000", "1000": "1000"}.items()):
        made = built(("/bin/sh", "-c", "id -u; id -g"), User=user, Labels={"test": uuid.uuid4().hex})
        name = registry.add(f"user-{number}", made)
        await lab.runtime.pull(name)
        found = await held(lab, name)
        status = await lab.run(Behaviour([], {}), a_key(name=f"c{number}"), image=name, security=Security(group=7))

        assert found
        assert found.user == user
        assert raw(await lab.log(status.key)) == f"{told}\n7\n".encode()


async def test_a_second_pull_gives_the_same(lab: Lab, registry: Registry, image: Built) -> None:
    name = registry.add("again", image)

    assert await lab.runtime.pull(name) == await lab.runtime.pull(name)
    await lab.runtime.remove_image(image.id)


async def test_an_image_in_use_is_kept(lab: Lab, registry: Registry, image: Built) -> None:
    name = registry.add("used", image)
    pulled = await lab.runtime.pull(name)
    key = await lab.start(FOREVER, image=name)
    await lab.runtime.remove_image(pulled)
    assert await held(lab, name)

    await lab.runtime.stop_container(key, timedelta())
    await lab.runtime.remove_sandbox(key.pod_uid)
    await lab.runtime.remove_image(pulled)
    assert await held(lab, name) is None


async def test_a_registry_s_login_is_used(lab: Lab, registry: Registry, image: Built) -> None:
    name = registry.add("secret", image)
    registry.login = Login("me", "hunter2")
    try:
        for login in (None, Login("me", "wrong")):
            with pytest.raises(PullError) as raised:
                await lab.runtime.pull(name, login)
            assert raised.value.reason == "ErrImagePull"
            assert "hunter2" not in str(raised.value)
        assert await lab.runtime.pull(name, registry.login) == image.id
    finally:
        registry.login = None
    await lab.runtime.remove_image(image.id)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        pytest.param("{}/some/image:missing", "ErrImagePull", id="a tag that is not there"),
        pytest.param("127.0.0.1:1/some/image:1", "ErrImagePull", id="a registry that is not there"),
        pytest.param("Upper/Case", "InvalidImageName", id="a name that is none"),
        pytest.param("some/image:", "InvalidImageName", id="a tag that is none"),
        pytest.param("", "InvalidImageName", id="nothing"),
    ],
)
async def test_what_cannot_be_had_is_said(lab: Lab, registry: Registry, name: str, reason: str) -> None:
    with pytest.raises(PullError) as raised:
        await lab.runtime.pull(name.format(registry.name))

    assert raised.value.reason == reason
    assert name.format(registry.name) in str(raised.value)


async def test_what_is_not_there_makes_no_container(lab: Lab, registry: Registry) -> None:
    with pytest.raises(CreateError):
        await lab.start(script("true"), image=f"{registry.name}/never:1")

    assert await lab.runtime.list() == []

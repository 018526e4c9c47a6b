"""Answers of the API are kept for a second; while it is away, old ones are given."""

import asyncio

import pytest

from app.agent.network.service_lookup import FRESH, MOST, STALE, NoAnswerError, ServiceLookup
from app.client.api import Api
from app.client.protocol import service_path
from tests.agent.fake_api import FakeApi
from tests.agent.fake_clock import FakeClock

PATH = service_path("n1", "team", "ring")
RING = {"found": True, "slices": [{"endpoints": [[["10.0.0.1"], "w-0"]], "ports": [["http", "tcp", 80]]}]}


class Scene:
    def __init__(self) -> None:
        self.api, self.clock = FakeApi(), FakeClock()
        self.api.objects[PATH] = RING
        self.lookup = ServiceLookup(Api("http://api", transport=self.api), ["n1"], self.clock)

    async def find(self) -> bool:
        return (await self.lookup.records("team", "ring")).found

    def asked(self) -> int:
        return self.api.requests.count(f"GET {PATH}")


async def test_many_questions_are_one_request_a_second() -> None:
    scene = Scene()

    assert all(await asyncio.gather(*(scene.find() for _ in range(50))))
    assert scene.asked() == 1
    scene.clock.advance(FRESH)
    assert await scene.find()
    assert scene.asked() == 2


async def test_old_answers_stand_in_while_the_api_is_away() -> None:
    scene = Scene()
    await scene.find()
    scene.api.down = True
    scene.clock.advance(STALE - 1)
    assert await scene.find()

    scene.clock.advance(2)
    with pytest.raises(NoAnswerError):
        await scene.find()


async def test_an_older_api_knows_no_names() -> None:
    scene = Scene()
    del scene.api.objects[PATH]
    assert not await scene.find()


async def test_any_number_of_names_takes_a_bounded_room() -> None:
    scene = Scene()
    for number in range(MOST + 10):
        await scene.lookup.records("team", f"x{number}")
    assert len(scene.lookup._records._known) == MOST

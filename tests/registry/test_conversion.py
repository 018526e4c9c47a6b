"""Conversion in the registry: what is stored in an old version stays in it, watchers share calls, and what fails is not kept."""

import asyncio
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from app.kinds.apiextensions.custom_resource_schema import WebhookClientConfig, WebhookConversion
from app.machinery.base import Kind, ObjectMeta
from app.machinery.errors import ApiError
from app.plans.admission.webhooks.admission_review import CallError
from app.registry import conversion
from app.registry.codec import is_in_version, write_of
from app.registry.conversion import Converter
from tests.api.custom.definitions import GROUP, custom_kind

WEBHOOK = WebhookConversion(client_config=WebhookClientConfig(url="https://x"), conversion_review_versions=("v1",))
STORED: Kind[Any] = replace(custom_kind(), conversion=WEBHOOK)
OTHER: Kind[Any] = replace(STORED, version="v2", storage=STORED)


class Webhook:
    """A client whose webhook only changes the version."""

    def __init__(self) -> None:
        self.calls: list[int] = []
        self.failure: Exception | None = None

    async def post(self, _config: Any, body: bytes, _seconds: int) -> bytes:
        await asyncio.sleep(0)
        review = msgspec.json.decode(body)
        request = review["request"]
        self.calls.append(len(request["objects"]))
        if self.failure is not None:
            raise self.failure
        objects = [each | {"apiVersion": request["desiredAPIVersion"]} for each in request["objects"]]
        response = {"uid": request["uid"], "result": {"status": "Success"}, "convertedObjects": objects}
        return msgspec.json.encode({**review, "request": None, "response": response})


def an_object(name: str = "a", version: str = "v1") -> Any:
    return STORED.type(
        api_version=f"{GROUP}/{version}", kind="Widget", metadata=ObjectMeta(name=name, uid="u"), content={"spec": {}}
    )


def body(name: str = "a", version: str = "v1") -> bytes:
    return write_of(STORED, an_object(name, version), "A").body


def a_converter() -> tuple[Converter, Webhook]:
    webhook = Webhook()
    return Converter(webhook), webhook  # type: ignore[arg-type]  # as far as it is used


def test_a_write_of_metadata_keeps_the_version_that_an_object_is_stored_in() -> None:
    assert is_in_version(STORED, body())
    assert not is_in_version(OTHER, body())
    assert is_in_version(OTHER, body(version="v2")), "as garbage collection writes it"


async def test_only_what_is_in_another_version_is_converted() -> None:
    converter, webhook = a_converter()
    kept = body("b", "v2")

    made = await converter.convert(OTHER, [body("a"), kept, body("c")])

    assert [is_in_version(OTHER, each) for each in made] == [True] * 3
    assert made[1] is kept
    assert [msgspec.json.decode(each)["metadata"]["name"] for each in made] == ["a", "b", "c"]
    assert webhook.calls == [2]


async def test_large_lists_are_cut_into_reviews(monkeypatch: pytest.MonkeyPatch) -> None:
    converter, webhook = a_converter()
    monkeypatch.setattr(conversion, "MOST_REVIEWED", 3 * len(body()))

    assert len(await converter.convert(OTHER, [body() for _ in range(7)])) == 7
    assert webhook.calls == [3, 3, 1]


async def test_watchers_share_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    converter, webhook = a_converter()
    wanted = [body("a"), body("b")]

    one, other = await asyncio.gather(*(converter.convert_shared(OTHER, wanted) for _ in range(2)))

    assert one == other
    assert await converter.convert_shared(OTHER, [body("b"), body("c")]) != one
    assert webhook.calls == [2, 1]
    monkeypatch.setattr(conversion, "MOST_REMEMBERED", 0)
    await converter.convert_shared(OTHER, [body("d")])
    assert not converter._shared
    assert converter._size == 0


async def test_a_failure_is_told_to_all_that_wait_and_kept_for_nobody() -> None:
    converter, webhook = a_converter()
    webhook.failure = CallError("failed to call webhook: EOF")

    failed = await asyncio.gather(
        *(converter.convert_shared(OTHER, [body()]) for _ in range(2)), return_exceptions=True
    )

    assert [str(each) for each in failed] == [f"conversion webhook for {GROUP}/v1, Kind=Widget failed: EOF"] * 2
    assert all(isinstance(each, ApiError) and each.code == 500 for each in failed)
    webhook.failure = None
    assert is_in_version(OTHER, (await converter.convert_shared(OTHER, [body()]))[0])


async def test_a_watcher_that_leaves_takes_no_call_from_the_others() -> None:
    converter, _ = a_converter()
    first = asyncio.create_task(converter.convert_shared(OTHER, [body()]))
    await asyncio.sleep(0)
    second = asyncio.create_task(converter.convert_shared(OTHER, [body()]))
    await asyncio.sleep(0)
    first.cancel()

    assert is_in_version(OTHER, (await second)[0])

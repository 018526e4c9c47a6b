"""How large an object may be."""

from typing import Any

import pytest
from msgspec.structs import replace

from app.kinds.core.configmap import KIND as CONFIGMAPS
from app.kinds.core.configmap import ConfigMap
from app.kinds.core.secret import KIND as SECRETS
from app.kinds.core.secret import Secret
from app.machinery.base import ObjectMeta
from app.machinery.errors import ApiError
from app.registry import codec
from app.registry.verbs import objects
from app.registry.verbs.objects import Registry
from tests.registry.examples import create


def meta(**parts: Any) -> ObjectMeta:
    return ObjectMeta(name="a", namespace="default", **parts)


def labels(count: int) -> dict[str, str]:
    return {f"label-{number}": "value" for number in range(count)}


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param({"labels": labels(90_000)}, id="90,000 labels"),
        pytest.param({"finalizers": tuple(f"example.com/finalizer-{each}" for each in range(70_000))}, id="finalizers"),
    ],
)
async def test_an_object_beyond_what_kubernetes_stores_is_refused(registry: Registry, parts: dict[str, Any]) -> None:
    with pytest.raises(ApiError, match="request is too large") as refused:
        await create(registry, CONFIGMAPS, ConfigMap(metadata=meta(**parts)))
    assert (refused.value.code, refused.value.reason) == (413, "RequestEntityTooLarge")

    await create(registry, CONFIGMAPS, ConfigMap(metadata=meta()))
    with pytest.raises(ApiError, match="request is too large"):
        await objects.edit(
            registry, CONFIGMAPS, "default", "a", lambda old: replace(old, metadata=replace(old.metadata, **parts))
        )


async def test_what_only_json_makes_large_is_stored(registry: Registry) -> None:
    annotations = {"a": "\n" * 250_000}
    await create(registry, SECRETS, Secret(metadata=meta(annotations=annotations), data={"a": bytes(1_000_000)}))
    await create(registry, CONFIGMAPS, ConfigMap(metadata=meta(annotations=annotations), data={"a": "\n" * 1_000_000}))


async def test_an_object_that_is_too_large_already_may_shrink(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create(registry, CONFIGMAPS, ConfigMap(metadata=meta(finalizers=("example.com/a",)), data={"a": "x" * 5_000}))
    monkeypatch.setattr(codec, "MOST_BYTES", 1_000)
    await objects.edit(
        registry, CONFIGMAPS, "default", "a", lambda old: replace(old, metadata=replace(old.metadata, finalizers=()))
    )
    with pytest.raises(ApiError, match="request is too large"):
        await objects.edit(registry, CONFIGMAPS, "default", "a", lambda old: replace(old, data={"a": "x" * 6_000}))

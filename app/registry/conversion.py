"""Conversion of custom objects between versions by a webhook: one call for all objects that are not in the wanted version.

The verbs call `load` where they read an object and `convert_write` where they store one; lists and watches convert what they are
about to send. Calls share client, connections and bounds with admission webhooks. A kind without a conversion webhook costs one
comparison.

Decision: docs/decisions/0039-conversion-at-the-stores-edge.md.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from functools import partial
from uuid import uuid4

from msgspec.structs import replace

from app.machinery.base import Kind, Object
from app.machinery.custom.completion import prune_content
from app.machinery.custom.structural_schema import StructuralSchema
from app.machinery.errors import ApiError
from app.machinery.object_codec import decode_object, encode_json, encode_object
from app.plans.admission.webhooks.admission_review import CallError
from app.plans.conversion_review import (
    ConversionError,
    Wanted,
    choose_review_version,
    describe_kind,
    encode_review,
    read_response,
)
from app.registry import offload
from app.registry.codec import body_of, is_in_version, selector_index_of, type_of
from app.registry.webhook_calls.webhook_client import CALL_FAILED, WebhookClient
from app.store import StoredObject, Write

SECONDS = 30
MOST_REVIEWED = 4 << 20  # bytes of the objects in one review; a page of a list has half of it
MOST_REMEMBERED = 8 << 20  # bytes of converted objects that watchers share


class ConversionFailedError(ApiError):
    """A webhook has failed. 500 without a reason, as in Kubernetes."""

    def __init__(self, why: str) -> None:
        super().__init__(500, "", why)


class Converter:
    """All conversions of one process. 500 if a webhook fails, in Kubernetes' words."""

    def __init__(self, client: WebhookClient) -> None:
        self._client = client
        self._shared: OrderedDict[tuple[Kind, bytes], asyncio.Future[bytes]] = OrderedDict()
        self._size = 0  # of what is in it and converted

    async def convert(self, kind: Kind, bodies: Sequence[bytes]) -> list[bytes]:
        """Objects, as JSON, in the version of `kind`; what is in it already stays as it is."""
        made = list(bodies)
        if kind.conversion is None:
            return made
        others = [index for index, body in enumerate(made) if not is_in_version(kind, body)]
        for part in _cut_reviews(made, others):
            for index, body in zip(part, await self._call(kind, [made[each] for each in part]), strict=True):
                made[index] = body
        return made

    async def load(self, kind: Kind, head: StoredObject) -> StoredObject:
        """A stored object as it is in the version of `kind`."""
        if kind.conversion is None:
            return head
        (found,) = await self.load_all(kind, [head])
        return found

    async def load_all(self, kind: Kind, heads: Sequence[StoredObject]) -> Sequence[StoredObject]:
        """Stored objects as they are in the version of `kind`, by one call."""
        if kind.conversion is None:
            return heads
        bodies = await self.convert(kind, [head.body for head in heads])
        return [
            head if body is head.body else StoredObject(head.key, head.uid, head.revision, body, None)
            for head, body in zip(heads, bodies, strict=True)
        ]

    async def convert_object(self, kind: Kind, obj: Object) -> Object:
        """An object in the version of `kind`, with its resourceVersion."""
        if kind.conversion is None or obj.api_version == kind.api_version:
            return obj
        (body,) = await self.convert(kind, [encode_object(obj)])
        return await offload.run(len(body), decode_object, body, type_of(kind))

    async def convert_write(self, kind: Kind, write: Write, before: StoredObject | None = None) -> Write:
        """A write of an object in the version of `kind`, as it is stored: in the storage version. `before`: what it replaces."""
        stored: Kind = kind.storage or kind
        if kind.conversion is None or write.object is None or write.object.api_version == stored.api_version:
            return write
        made = await self.convert_object(stored, write.object)
        index = selector_index_of(stored, made)
        old = selector_index_of(stored, decode_object(before.body, type_of(stored))) if before is not None else None
        return replace(
            write,
            body=body_of(stored, made),
            selector_index=index,
            old_selector_index=old if old != index else None,
            object=made,
        )

    # --- for watchers

    async def convert_shared(self, kind: Kind, bodies: Sequence[bytes]) -> list[bytes]:
        """As `convert`, for what many watchers are sent at about the same time: one of them makes the call."""
        missing = [each for each in dict.fromkeys(bodies) if not is_in_version(kind, each)]
        missing = [each for each in missing if (kind, each) not in self._shared]
        if missing:
            loop = asyncio.get_running_loop()
            self._shared.update({(kind, each): loop.create_future() for each in missing})
            call = asyncio.ensure_future(self.convert(kind, missing))
            call.add_done_callback(partial(self._settle, kind, missing))
        found = [self._shared.get((kind, each)) for each in bodies]
        return [
            body if future is None else await asyncio.shield(future) for body, future in zip(bodies, found, strict=True)
        ]

    def _settle(self, kind: Kind, bodies: Sequence[bytes], call: "asyncio.Future[list[bytes]]") -> None:
        """Tell who waits. A failure is kept for nobody else; what was converted, up to a size."""
        error = None if call.cancelled() else call.exception()
        for index, body in enumerate(bodies):
            future = self._shared[kind, body]
            if call.cancelled() or error is not None:
                del self._shared[kind, body]
                future.cancel() if error is None else future.set_exception(error)
                _ = error and future.exception()  # nobody may wait for it any longer
                continue
            future.set_result(call.result()[index])
            self._size += _size_of(body, future)
        while self._size > MOST_REMEMBERED:
            oldest = next(each for each, made in self._shared.items() if made.done())
            self._size -= _size_of(oldest[1], self._shared.pop(oldest))

    async def _call(self, kind: Kind, bodies: Sequence[bytes]) -> list[bytes]:
        webhook, size = kind.conversion, sum(map(len, bodies))
        try:
            wanted = Wanted(choose_review_version(webhook.conversion_review_versions), str(uuid4()), kind.api_version)
            review = encode_review(wanted, bodies)
            answer = await self._client.post(webhook.client_config, review, SECONDS)
            return await offload.run(_weight(kind, size + len(answer)), _read, kind, wanted, bodies, answer)
        except CallError as error:
            first = decode_object(bodies[0], Object)
            what = describe_kind(first.api_version, first.kind)
            why = f"conversion webhook for {what} failed: {str(error).removeprefix(CALL_FAILED)}"
            raise ConversionFailedError(why) from error
        except ConversionError as error:
            raise ConversionFailedError(str(error)) from error


def _cut_reviews(bodies: Sequence[bytes], indexes: Sequence[int]) -> Iterator[list[int]]:
    """Cut what is to be converted into reviews: nearly always one."""
    part: list[int] = []
    size = 0
    for index in indexes:
        if part and size + len(bodies[index]) > MOST_REVIEWED:
            yield part
            part, size = [], 0
        part.append(index)
        size += len(bodies[index])
    if part:
        yield part


def _weight(kind: Kind, size: int) -> int:
    """Return how long an answer takes to read, in bytes: a schema that nobody has used yet is compiled for it."""
    schema: StructuralSchema = kind.type.structural_schema
    return size if schema.is_compiled else max(size, offload.LARGE + 1)


def _read(kind: Kind, wanted: Wanted, originals: Sequence[bytes], answer: bytes) -> list[bytes]:
    """The bodies of converted objects, without fields that the version does not have."""
    root = kind.type.structural_schema.root
    return [
        encode_json(
            {
                "apiVersion": kind.api_version,
                "kind": kind.name,
                "metadata": document["metadata"],
                **prune_content(document, root),
            }
        )
        for document in read_response(wanted, originals, answer)
    ]


def _size_of(body: bytes, converted: "asyncio.Future[bytes]") -> int:
    return len(body) + len(converted.result())

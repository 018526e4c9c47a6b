"""Webhook review: asks admission webhooks about a write: the mutating ones in turn, then the validating ones at the same time.

The registry calls it for what clients write, the Job and CronJob controllers for what they create. Which webhooks a write
concerns is known already (`app.plans.admission.webhooks.matching`); selectors and match conditions are compared here.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from uuid import uuid4

import msgspec

from app.kinds.admission.policy_schema import ValidatingAdmissionPolicySpec
from app.machinery.base import Kind, Object
from app.machinery.custom.object_body import convert_document
from app.machinery.errors import ApiError
from app.machinery.object_codec import encode_object
from app.machinery.patch.json_patch import apply_json_patch
from app.plans.admission.review import NOTHING, Review, merge
from app.plans.admission.webhooks import outcome
from app.plans.admission.webhooks.admission_review import (
    CallError,
    ReviewRequest,
    ReviewResponse,
    choose_version,
    encode_review,
    read_patch,
    read_response,
    request_document,
)
from app.plans.admission.webhooks.matching import Invocation, has_selectors, is_selected
from app.plans.admission.webhooks.reinvocation import Reinvocation
from app.registry import offload
from app.registry.admission.attributes import Attributes, namespace_of, target_of
from app.registry.admission.policy_evaluator import PolicyEvaluator
from app.registry.admission.policy_process import Ask
from app.registry.admission.requester import Requester, user_info
from app.registry.codec import with_type_meta
from app.registry.conversion import Converter
from app.registry.webhook_calls.webhook_client import WebhookClient
from app.store import Mirror
from app.structured_logging import Logger

logger = Logger(__name__)
ROUNDS = 2  # each mutating webhook is called twice at most
_SECONDS = 10


class Mutated(NamedTuple):
    """What the mutating webhooks made of an object, and what there is to say about it."""

    object: Object | None
    review: Review


class _Asked(NamedTuple):
    """A write that webhooks are asked about: by whom, and with the rules as new as `mirror`."""

    attributes: Attributes
    mirror: Mirror
    requester: Requester | None

    def with_object(self, obj: Object) -> "_Asked":
        return self._replace(attributes=self.attributes._replace(new=obj))


class WebhookReviewer:
    """All calls of admission webhooks of one process."""

    def __init__(self, client: WebhookClient, evaluator: PolicyEvaluator) -> None:
        self.client = client
        self.converter = Converter(client)
        self._evaluator = evaluator

    async def mutate(
        self,
        invocations: Sequence[Invocation],
        mirror: Mirror,
        attributes: Attributes,
        requester: Requester | None,
    ) -> Mutated:
        """Return the object as the webhooks want it. Raises their refusal."""
        asked, reviews, reinvocation = _Asked(attributes, mirror, requester), [], Reinvocation()
        notes: dict[str, str] = {}
        try:
            for round_ in range(ROUNDS):
                for index, invocation in enumerate(invocations):
                    if round_ and not reinvocation.is_due(invocation.hook):
                        continue
                    changed, review = await self._mutate_once(invocation, asked, (round_, index))
                    reviews.append(review)
                    notes |= review.audit_annotations
                    asked = asked if changed is None else asked.with_object(changed)
                    reinvocation.note(invocation.hook, changed=changed is not None)
        except ApiError as error:
            error.audit_annotations = {**notes, **error.audit_annotations}
            raise
        return Mutated(asked.attributes.new, merge(reviews))

    async def _mutate_once(
        self, invocation: Invocation, asked: _Asked, place: tuple[int, int]
    ) -> tuple[Object | None, Review]:
        """The changed object, if a webhook changed it, and what it said."""
        hook = invocation.hook
        if not await self._applies(invocation, asked):
            return None, NOTHING
        try:
            version, response = await self._ask(invocation, asked, mutating=True)
            operations = read_patch(version, response) if response.allowed else []
        except CallError as error:
            return None, _fail_open(invocation, error, outcome.failed_open_annotation(hook, place, mutating=True))
        review = _review_of(invocation, response)
        changed = await self._patch(invocation, asked.attributes, operations) if operations else None
        said = outcome.mutation_annotation(hook, place, changed=changed is not None)
        return changed, Review(review.warnings, {**review.audit_annotations, **said})

    async def validate(
        self,
        invocations: Sequence[Invocation],
        mirror: Mirror,
        attributes: Attributes,
        requester: Requester | None,
    ) -> Review:
        """Return what the webhooks say. Raises the refusal of the first that refuses, when all have answered."""
        asked = _Asked(attributes, mirror, requester)
        applying = [each for each in invocations if await self._applies(each, asked)]
        if len(applying) == 1:
            return await self._validate_once(applying[0], asked, 0)
        calls = (self._validate_once(each, asked, index) for index, each in enumerate(applying))
        answers = await asyncio.gather(*calls, return_exceptions=True)
        for each in answers:
            if isinstance(each, BaseException):
                raise each
        return merge(each for each in answers if isinstance(each, Review))

    async def _validate_once(self, invocation: Invocation, asked: _Asked, index: int) -> Review:
        try:
            _, response = await self._ask(invocation, asked, mutating=False)
        except CallError as error:
            note = outcome.failed_open_annotation(invocation.hook, (0, index), mutating=False)
            return _fail_open(invocation, error, note)
        return _review_of(invocation, response)

    # --- whether and how one is called

    async def _applies(self, invocation: Invocation, asked: _Asked) -> bool:
        """Return whether selectors and match conditions choose the write. Raises the 403 if a condition fails, unless ignored."""
        webhook, attributes = invocation.hook.webhook, asked.attributes
        if has_selectors(webhook) and not is_selected(
            webhook, target_of(attributes, namespace_of(attributes, asked.mirror))
        ):
            return False
        if not webhook.match_conditions:
            return True
        spec = ValidatingAdmissionPolicySpec(match_conditions=webhook.match_conditions)
        request = await self._request(invocation, asked, "")
        documents = {
            "object": _raw(request.object),
            "oldObject": _raw(request.old_object),
            "request": {**request_document(request), "object": None, "oldObject": None},
        }
        key = f"{invocation.hook.key}/{webhook.name}"
        (found,) = await self._evaluator.evaluate({key: spec}, [documents], [Ask(key, 0)])
        if not found.error:
            return found.applies
        if webhook.failure_policy == "Ignore":
            return False
        raise outcome.condition_error(attributes.kind, attributes.name, found.error)

    async def _ask(self, invocation: Invocation, asked: _Asked, *, mutating: bool) -> tuple[str, ReviewResponse]:
        """Return the response, and the version that it is in. Raises CallError; the 400 if it may not be called."""
        webhook = invocation.hook.webhook
        if asked.attributes.dry_run and not outcome.supports_dry_run(invocation.hook):
            raise outcome.dry_run_error(webhook.name)
        version, uid = choose_version(webhook.admission_review_versions), str(uuid4())
        body = encode_review(version, await self._request(invocation, asked, uid))
        answer = await self.client.post(webhook.client_config, body, webhook.timeout_seconds or _SECONDS)
        response = await offload.run(len(answer), read_response, version, uid, answer, mutating=mutating)
        return version, response

    async def _request(self, invocation: Invocation, asked: _Asked, uid: str) -> ReviewRequest:
        attributes, kind = asked.attributes, invocation.kind
        return ReviewRequest(
            uid=uid,
            kind=kind,
            request_kind=attributes.kind,
            subresource=attributes.subresource,
            name=attributes.name,
            namespace=attributes.namespace,
            operation=attributes.operation,
            user=user_info(asked.requester),
            object=await self._encode(kind, attributes.new),
            old_object=await self._encode(kind, attributes.old),
            dry_run=attributes.dry_run,
        )

    async def _encode(self, kind: Kind, obj: Object | None) -> bytes | None:
        """The object in a version of its kind."""
        if obj is None:
            return None
        obj = await self.converter.convert_object(kind, obj)
        return encode_object(with_type_meta(kind, kind.outward(obj) if kind.outward else obj))

    async def _patch(
        self, invocation: Invocation, attributes: Attributes, operations: Sequence[object]
    ) -> Object | None:
        """The object with a webhook's patch and its defaults; None if that changes nothing. Raises the 500."""
        name, obj = invocation.hook.webhook.name, attributes.new
        if obj is None:
            raise outcome.patch_error(name)
        before = await self._encode(invocation.kind, obj) or b""
        try:
            patched = await offload.run(len(before), _apply, invocation.kind, before, operations)
        except ApiError as error:
            if error.code == 429:
                raise
            raise outcome.internal_error(error.message) from error
        made = with_type_meta(attributes.kind, await self.converter.convert_object(attributes.kind, patched))
        return None if made == with_type_meta(attributes.kind, obj) else made


def _raw(body: bytes | None) -> msgspec.Raw | None:
    return None if body is None else msgspec.Raw(body)


def _review_of(invocation: Invocation, response: ReviewResponse) -> Review:
    """What a webhook says beside its patch. Raises its refusal."""
    name = invocation.hook.webhook.name
    review = Review(outcome.warnings_of(response), outcome.annotations_of(name, response))
    if response.allowed:
        return review
    refusal = outcome.refusal(name, response)
    refusal.audit_annotations = review.audit_annotations
    raise refusal


def _fail_open(invocation: Invocation, error: CallError, note: Mapping[str, str]) -> Review:
    """Pass over a webhook that could not be called, if it says so. Raises the 500 otherwise."""
    webhook = invocation.hook.webhook
    if webhook.failure_policy != "Ignore":
        raise outcome.call_error(webhook.name, str(error)) from error
    logger.warning("cannot call an admission webhook; its failurePolicy is Ignore", names=webhook.name, error=error)
    return Review((), note)


# --- patches


def _apply(kind: Kind, before: bytes, operations: Sequence[object]) -> Object:
    """An object of the stored kind, or of this one if a webhook converts it."""
    document = apply_json_patch(msgspec.json.decode(before), list(operations))
    decoded: Object = convert_document(kind, document).object
    decoded = kind.inward(decoded) if kind.inward else decoded
    stored = (kind.storage or kind) if kind.inward else kind
    prepared: Object = stored.prepare(decoded)
    return prepared

"""Outcome: what follows from what webhooks answer: a refusal, warnings, and what an audit log notes. Pure.

Texts are those of Kubernetes' webhook plugins.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from app.machinery.base import Kind
from app.machinery.errors import ApiError, bad_request, forbidden_error
from app.plans.admission.webhooks.admission_review import ReviewResponse
from app.plans.admission.webhooks.matching import Hook

MOST_CHARACTERS = 2048  # of one warning, as it travels in a header
MOST_WARNINGS = 32  # of one webhook
_MUTATION = "mutation.webhook.admission.k8s.io/"
_FAILED_OPEN = "failed-open."
_VALIDATING = "validating.webhook.admission.k8s.io/"
_DETAILS = {"name", "group", "kind", "uid", "causes", "retryAfterSeconds"}


def refusal(name: str, response: ReviewResponse) -> ApiError:
    """Return the refusal of a webhook that denies, with its own code and reason."""
    status = response.result
    denied = f'admission webhook "{name}" denied the request'
    if status is None:
        return ApiError(400, "", f"{denied} without explanation")
    explanation = status.message or status.reason
    message = f"{denied}: {explanation}" if explanation else f"{denied} without explanation"
    code = status.code if 400 <= status.code <= 599 else 400
    return ApiError(code, status.reason, message, **_details(status.details))


def _details(given: Any) -> dict[str, Any]:
    return {name: value for name, value in given.items() if name in _DETAILS} if isinstance(given, dict) else {}


def call_error(name: str, why: str) -> ApiError:
    """Return the refusal when a webhook that must be asked could not be."""
    return internal_error(f'failed calling webhook "{name}": {why}')


def internal_error(why: str) -> ApiError:
    return ApiError(500, "InternalError", f"Internal error occurred: {why}", causes=[{"message": why}])


def patch_error(name: str, *, why: str = "") -> ApiError:
    """Return the refusal when a patch cannot be applied, or there is nothing that it could be applied to."""
    attempted = f'admission webhook "{name}" attempted to modify the object, which is not supported for this operation'
    return internal_error(why or attempted)


def dry_run_error(name: str) -> ApiError:
    return bad_request(f'admission webhook "{name}" does not support dry run')


def condition_error(kind: Kind, name: str, why: str) -> ApiError:
    """Return the refusal when the match conditions of a webhook that must be asked cannot be evaluated."""
    return forbidden_error(kind.resource, name, why)


def supports_dry_run(hook: Hook) -> bool:
    return hook.webhook.side_effects in ("None", "NoneOnDryRun")


# --- what the client is warned of, and what is noted for audit


def warnings_of(response: ReviewResponse) -> tuple[str, ...]:
    return tuple(text[:MOST_CHARACTERS] for text in (response.warnings or ())[:MOST_WARNINGS])


def annotations_of(name: str, response: ReviewResponse) -> dict[str, str]:
    return {f"{name}/{key}": text for key, text in (response.audit_annotations or {}).items()}


def mutation_annotation(hook: Hook, place: tuple[int, int], *, changed: bool) -> Mapping[str, str]:
    """Note which webhooks changed the object. `place`: the round, and the index in it."""
    said = {"configuration": hook.configuration, "webhook": hook.webhook.name, "mutated": changed}
    return {f"{_MUTATION}round_{place[0]}_index_{place[1]}": msgspec.json.encode(said).decode()}


def failed_open_annotation(hook: Hook, place: tuple[int, int], *, mutating: bool) -> Mapping[str, str]:
    """Note which webhooks could not be called, and were passed over."""
    plugin = _MUTATION if mutating else _VALIDATING
    return {f"{_FAILED_OPEN}{plugin}round_{place[0]}_index_{place[1]}": hook.webhook.name}

"""Outcome: what follows from what the policies say: a refusal, warnings, and what an audit log notes. Pure.

Texts are those of Kubernetes' ValidatingAdmissionPolicy plugin.
"""

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from app.machinery.errors import ApiError
from app.plans.admission.policies.evaluation import Failure, Findings
from app.plans.admission.policies.matching import Bound, Target
from app.plans.admission.review import Review

VALIDATION_FAILURE = "validation.policy.admission.k8s.io/validation_failure"
CODES = {"Unauthorized": 401, "Forbidden": 403, "Invalid": 422, "RequestEntityTooLarge": 413}
MOST_CHARACTERS = 2048  # of one warning, as it travels in a header


class Said(NamedTuple):
    """What one policy says of one request, by one binding."""

    bound: Bound
    findings: Findings


def conclude(target: Target, said: Iterable[Said]) -> Review:
    """Return what to tell the client and the audit log. Raises the refusal of the first policy that denies."""
    denied: list[tuple[Bound, Failure]] = []
    warnings: list[str] = []
    notes: dict[str, str] = {}
    audited: list[dict[str, object]] = []
    for bound, findings in said:
        name, binding = bound.policy.metadata.name, bound.binding.metadata.name
        notes |= {f"{name}/{key}": text for key, text in findings.notes.items()}
        failures = list(findings.failures)
        if findings.error and bound.policy.spec.failure_policy != "Ignore":
            failures.insert(0, Failure(findings.error))
        for failure in failures:
            actions = bound.binding.spec.validation_actions
            if "Deny" in actions:
                denied.append((bound, failure))
            if "Warn" in actions:
                text = f"Validation failed for ValidatingAdmissionPolicy '{name}' with binding '{binding}': {failure.message}"
                warnings.append(text[:MOST_CHARACTERS])
            if "Audit" in actions:
                entry = {"message": failure.message, "policy": name, "binding": binding}
                audited.append({**entry, "validationActions": list(actions)})
    if audited:
        notes[VALIDATION_FAILURE] = msgspec.json.encode(audited).decode()
    if denied:
        raise _refusal(target, *denied[0], notes)
    return Review(tuple(warnings), notes)


def _refusal(target: Target, bound: Bound, failure: Failure, notes: dict[str, str]) -> ApiError:
    kind = target.kind
    why = (
        f"ValidatingAdmissionPolicy '{bound.policy.metadata.name}' with binding '{bound.binding.metadata.name}' "
        f"denied request: {failure.message}"
    )
    named = f'{kind.resource} "{target.name}"' if target.name else kind.resource
    reason = failure.reason or "Invalid"
    causes = [{"message": why}]
    error = ApiError(
        CODES[reason],
        reason,
        f"{named} is forbidden: {why}",
        name=target.name,
        group=kind.group,
        kind=kind.plural,
        causes=causes,
    )
    error.audit_annotations = notes
    return error

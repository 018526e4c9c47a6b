"""Annotations of a request's audit events, such as `pod-security.kubernetes.io/audit-violations`.

Noted in the request's scope by whatever answers it: `content` for what was admitted, `kubernetes` and `app` for refusals.
`auditor` puts them into the events.
"""

from collections.abc import Mapping

from starlette.types import Scope

from app.machinery.errors import ApiError

KEY = "audit_annotations"  # of a scope


def annotate(scope: Scope, annotations: Mapping[str, str]) -> None:
    """Add annotations to the events of a request."""
    scope.setdefault(KEY, {}).update(annotations)


def annotate_refusal(scope: Scope, error: Exception) -> None:
    """Add the annotations of a refusal, if it has any."""
    if isinstance(error, ApiError) and error.audit_annotations:
        annotate(scope, error.audit_annotations)

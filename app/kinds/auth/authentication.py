"""Reviews and token requests of authentication.k8s.io. None of it is stored."""

from app.kinds.auth.authentication_schema import (
    BoundObjectReference,
    SelfSubjectReview,
    SelfSubjectReviewStatus,
    TokenRequest,
    TokenRequestSpec,
    TokenRequestStatus,
    TokenReview,
    TokenReviewStatus,
    UserInfo,
)
from app.machinery.errors import Cause, invalid

__all__ = [
    "GROUP",
    "LONGEST",
    "SHORTEST",
    "BoundObjectReference",
    "SelfSubjectReview",
    "SelfSubjectReviewStatus",
    "TokenRequest",
    "TokenRequestSpec",
    "TokenRequestStatus",
    "TokenReview",
    "TokenReviewStatus",
    "UserInfo",
    "faults_in_request",
]


GROUP = "authentication.k8s.io"
SHORTEST, LONGEST = 600, 1 << 32  # seconds that a token may be good for


def faults_in_request(request: TokenRequest) -> list[Cause]:
    seconds = request.spec.expiration_seconds
    if seconds is None:
        return []
    field = "spec.expirationSeconds"
    if seconds < SHORTEST:
        return [invalid(field, seconds, "may not specify a duration less than 10 minutes")]
    return [invalid(field, seconds, "may not specify a duration larger than 2^32 seconds")] if seconds > LONGEST else []

"""Reviews and token requests of authentication.k8s.io. None of it is stored."""

from typing import Annotated

import msgspec

from app.machinery.base import Int64, Object, ObjectMeta, Struct, Time, at
from app.machinery.errors import Cause, invalid

GROUP = "authentication.k8s.io"
SHORTEST, LONGEST = 600, 1 << 32  # seconds that a token may be good for


class UserInfo(Struct):
    """Somebody, as the server knows them."""

    username: Annotated[str, at(1, "The name.")] = ""
    uid: Annotated[str, at(2, "What tells them from others of the same name at other times.")] = ""
    groups: Annotated[tuple[str, ...], at(3, "The groups that they are in.")] = ()
    extra: Annotated[dict[str, tuple[str, ...]], at(4, "What else is known of them.")] = msgspec.field(
        default_factory=dict
    )


class SelfSubjectReviewStatus(Struct):
    """The answer to who I am."""

    user_info: Annotated[UserInfo, at(1, "Who asked.")] = msgspec.field(default_factory=UserInfo)


class SelfSubjectReview(Object):
    """Asks the server who I am."""

    status: Annotated[SelfSubjectReviewStatus, at(2, "Filled in by the server.")] = msgspec.field(
        default_factory=SelfSubjectReviewStatus
    )


class TokenReviewSpec(Struct):
    """The token in question."""

    token: Annotated[str, at(1, "The token.")] = ""
    audiences: Annotated[tuple[str, ...], at(2, "Whom the token must be meant for; this API if not given.")] = ()


class TokenReviewStatus(Struct):
    """What there is to say of a token."""

    authenticated: Annotated[bool, at(1, "Whether somebody is known by it.")] = False
    user: Annotated[UserInfo, at(2, "Who that is.")] = msgspec.field(default_factory=UserInfo)
    error: Annotated[str, at(3, "Why nobody is.")] = ""
    audiences: Annotated[tuple[str, ...], at(4, "Those of the audiences asked for that it is meant for.")] = ()


class TokenReview(Object):
    """Asks the server whose a token is."""

    spec: Annotated[TokenReviewSpec, at(2, "The question.", required=True)] = msgspec.field(
        default_factory=TokenReviewSpec
    )
    status: Annotated[TokenReviewStatus, at(3, "Filled in by the server.")] = msgspec.field(
        default_factory=TokenReviewStatus
    )


class BoundObjectReference(Struct):
    """An object that a token ends with."""

    kind: Annotated[str, at(1, "Pod, Secret or Node.")] = ""
    api_version: Annotated[str, at(2, "Its API version.")] = ""
    name: Annotated[str, at(3, "Its name.")] = ""
    uid: Annotated[str, at(4, "Its UID, if it must be this very one.")] = ""


class TokenRequestSpec(Struct):
    """What the token is to be."""

    audiences: Annotated[tuple[str, ...], at(1, "Whom it is meant for; this API if not given.", required=True)] = ()
    bound_object_ref: Annotated[BoundObjectReference | None, at(3, "The token ends with this object, too.")] = None
    expiration_seconds: Annotated[Int64 | None, at(4, "How long it is to be good; an hour if not given.")] = None


class TokenRequestStatus(Struct):
    """The token."""

    token: Annotated[str, at(1, "The token. It is shown once.", required=True)] = ""
    expiration_timestamp: Annotated[Time | None, at(2, "When it ends.", required=True)] = None


class TokenRequest(Object):
    """Asks for a token of a service account."""

    metadata: Annotated[ObjectMeta, at(1, "Name and namespace of the service account.")] = msgspec.field(
        default_factory=ObjectMeta
    )
    spec: Annotated[TokenRequestSpec, at(2, "What is asked for.", required=True)] = msgspec.field(
        default_factory=TokenRequestSpec
    )
    status: Annotated[TokenRequestStatus, at(3, "Filled in by the server.")] = msgspec.field(
        default_factory=TokenRequestStatus
    )


def faults_in_request(request: TokenRequest) -> list[Cause]:
    seconds = request.spec.expiration_seconds
    if seconds is None:
        return []
    field = "spec.expirationSeconds"
    if seconds < SHORTEST:
        return [invalid(field, seconds, "may not specify a duration less than 10 minutes")]
    return [invalid(field, seconds, "may not specify a duration larger than 2^32 seconds")] if seconds > LONGEST else []

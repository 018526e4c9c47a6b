"""Reviews (SelfSubjectReview, TokenReview, SubjectAccessReview and others): computed for each request, never stored.

`ephemeral_resources` serves `ANSWERS`; `token_requests` uses `review_response`.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, TypeVar, cast

import msgspec
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from app.api.auth.authenticator import AUDIENCE, MASTERS, NODES, Action, Authenticator, User, may, may_path
from app.api.http import content
from app.api.http.content_negotiation import PLAIN, negotiate_media_type
from app.api.http.query import create_options, query_of
from app.api.resources.discovery import EphemeralResource
from app.kinds.auth import authentication, authorization
from app.kinds.auth.authentication import (
    SelfSubjectReview,
    SelfSubjectReviewStatus,
    TokenReview,
    TokenReviewStatus,
    UserInfo,
)
from app.kinds.auth.authorization import (
    FieldSelectorAttributes,
    LocalSubjectAccessReview,
    NonResourceAttributes,
    NonResourceRule,
    ResourceAttributes,
    ResourceRule,
    SelfSubjectAccessReview,
    SelfSubjectRulesReview,
    SubjectAccessReview,
    SubjectAccessReviewStatus,
    SubjectRulesReviewStatus,
)
from app.machinery.base import Object
from app.machinery.errors import ApiError, bad_request, unprocessable
from app.machinery.selectors import EVERY_FIELD, FieldRequirement, FieldSelector, parse_fields
from app.plans.admission.rbac import Access
from app.registry.verbs.objects import Registry

O = TypeVar("O", bound=Object)  # noqa: E741 - as in app.machinery.base
Reviewing = Callable[[Registry, Request, Any, str | None], Awaitable[Object]]


# --- access reviews


async def _review_own_access(
    registry: Registry, request: Request, review: SelfSubjectAccessReview, _: str | None
) -> Object:
    _check_valid(review)
    spec = review.spec
    return replace(
        review,
        status=await _decide(registry, _user(request), spec.resource_attributes or spec.non_resource_attributes),
    )


async def _review_access(
    registry: Registry, _: Request, review: SubjectAccessReview | LocalSubjectAccessReview, namespace: str | None
) -> Object:
    if namespace is not None:
        review = _with_namespace(review, namespace)
    _check_valid(review)
    spec = review.spec
    subject = User(name=spec.user, groups=spec.groups, uid=spec.uid, extra=spec.extra)
    status = await _decide(registry, subject, spec.resource_attributes or spec.non_resource_attributes)
    return replace(review, status=status)


def _with_namespace(
    review: SubjectAccessReview | LocalSubjectAccessReview, namespace: str
) -> SubjectAccessReview | LocalSubjectAccessReview:
    if review.metadata.namespace and review.metadata.namespace != namespace:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
    return replace(review, metadata=replace(review.metadata, namespace=namespace))


def _check_valid(review: authorization.AccessReview) -> None:
    causes = authorization.faults_in_review(review)
    if causes:
        raise unprocessable(type(review).__name__, authorization.GROUP, "", causes)


async def _decide(
    registry: Registry, user: User, asked: ResourceAttributes | NonResourceAttributes | None
) -> SubjectAccessReviewStatus:
    if MASTERS in user.groups:
        return SubjectAccessReviewStatus(allowed=True)
    rights = await registry.policy.rights.of(user.name, user.groups)
    if isinstance(asked, ResourceAttributes):
        action = _action_of(asked)
        grant, fixed, complaint = rights.allowing(action), may(user, action), rights.complaint(action.namespace)
    elif asked is not None:
        grant = rights.allowing_path(asked.verb, asked.path)
        fixed, complaint = may_path(user, asked.verb, asked.path), rights.complaint("")
    else:
        raise AssertionError("unreachable: a review that asks nothing is refused")
    if grant is not None:
        return SubjectAccessReviewStatus(allowed=True, reason=f"RBAC: allowed by {grant.through}")
    return SubjectAccessReviewStatus(allowed=fixed, reason="" if fixed else complaint)


def _action_of(asked: ResourceAttributes) -> Action:
    return Action(
        asked.verb,
        asked.group,
        asked.resource,
        asked.subresource,
        asked.namespace,
        asked.name,
        _field_selector_of(asked.field_selector) if asked.field_selector else EVERY_FIELD,
    )


def _field_selector_of(selector: FieldSelectorAttributes) -> FieldSelector:
    """Return the field selector of a review. Requirements that cannot be parsed are dropped, as in Kubernetes:
    that makes the selector wider, and so never grants more.
    """
    if selector.raw_selector:
        with suppress(ApiError):
            return parse_fields(selector.raw_selector)
    equal = (each for each in selector.requirements if each.operator == "In" and len(each.values) == 1)
    return FieldSelector(tuple(FieldRequirement(each.key, each.values[0], equal=True) for each in equal))


# --- rules reviews


async def _review_rules(registry: Registry, request: Request, review: SelfSubjectRulesReview, _: str | None) -> Object:
    user = _user(request)
    namespace = review.spec.namespace
    if not namespace:
        raise bad_request("no namespace on request")
    is_node = NODES in user.groups
    status = replace(
        _list_rules(await registry.policy.rights.of(user.name, user.groups), namespace),
        incomplete=is_node,
        evaluation_error="node authorizer does not support user rule resolution" if is_node else "",
    )
    return replace(review, status=status)


def _list_rules(rights: Access, namespace: str) -> SubjectRulesReviewStatus:
    rules = rights.rules(namespace)
    return SubjectRulesReviewStatus(
        resource_rules=tuple(
            ResourceRule(
                verbs=rule.verbs,
                api_groups=rule.api_groups,
                resources=rule.resources,
                resource_names=rule.resource_names,
            )
            for rule in rules
            if rule.resources
        ),
        non_resource_rules=tuple(
            NonResourceRule(verbs=rule.verbs, non_resource_urls=rule.non_resource_urls)
            for rule in rules
            if rule.non_resource_urls
        ),
    )


# --- self and token reviews


async def _review_self(_: Registry, request: Request, review: SelfSubjectReview, __: str | None) -> Object:
    return replace(review, status=SelfSubjectReviewStatus(user_info=_user_info(_user(request))))


def _user(request: Request) -> User:
    return cast("User", request.state.user)


def _user_info(user: User) -> UserInfo:
    return UserInfo(username=user.name, uid=user.uid, groups=user.groups, extra=dict(user.extra))


async def _review_token(_: Registry, request: Request, review: TokenReview, __: str | None) -> Object:
    if not review.spec.token:
        raise bad_request("token is required for TokenReview in authentication")
    authenticator: Authenticator = request.app.state.authenticator
    known = await authenticator.lookup(review.spec.token)
    return replace(review, status=_token_status(known, review.spec.audiences))


def _token_status(known: User | None, audiences: tuple[str, ...]) -> TokenReviewStatus:
    if known is None:
        return TokenReviewStatus(error="invalid bearer token")
    meant = known.audiences or (AUDIENCE,)
    both = tuple(each for each in meant if each in (audiences or (AUDIENCE,)))
    if not both:
        asked = audiences or (AUDIENCE,)
        shown = [msgspec.json.encode(each).decode().replace(",", " ") for each in (meant, asked)]
        why = f"token audiences {shown[0]} is invalid for the target audiences {shown[1]}"
        return TokenReviewStatus(error=f"[invalid bearer token, {why}]")
    return TokenReviewStatus(authenticated=True, user=_user_info(known), audiences=both)


# --- answers


def review_response(request: Request, obj: Object, warnings: Iterable[str]) -> Response:
    """Return 201 with the posted object as JSON; 406 if the client does not accept it: a review has no table."""
    negotiate_media_type(request.headers.get("accept"), PLAIN)
    return Response(msgspec.json.encode(obj), 201, content.warning_headers(warnings), "application/json")


def _reviewer(
    type_: type[O], reviewing: Reviewing, group: str, *, version: str = "v1", namespaced: bool = False
) -> tuple[EphemeralResource, Callable[[Registry, Request, str | None, str], Awaitable[Response]]]:
    plural = f"{type_.__name__.lower()}s"
    virtual = EphemeralResource(group, version, plural, type_.__name__, namespaced=namespaced, type=type_)

    async def answer(registry: Registry, request: Request, namespace: str | None, _: str) -> Response:
        options = create_options(query_of(request))
        decoded = await content.read_struct(request, type_, f"{group}/{version}", content.validation_of(options))
        review = await reviewing(registry, request, decoded.object, namespace)
        return review_response(request, review, decoded.warnings)

    return virtual, answer


ANSWERS: Mapping[EphemeralResource, Callable[[Registry, Request, str | None, str], Awaitable[Response]]] = dict(
    [
        _reviewer(SelfSubjectReview, _review_self, authentication.GROUP),
        _reviewer(SelfSubjectReview, _review_self, authentication.GROUP, version="v1beta1"),
        _reviewer(SelfSubjectReview, _review_self, authentication.GROUP, version="v1alpha1"),
        _reviewer(TokenReview, _review_token, authentication.GROUP),
        _reviewer(SelfSubjectAccessReview, _review_own_access, authorization.GROUP),
        _reviewer(SelfSubjectRulesReview, _review_rules, authorization.GROUP),
        _reviewer(SubjectAccessReview, _review_access, authorization.GROUP),
        _reviewer(LocalSubjectAccessReview, _review_access, authorization.GROUP, namespaced=True),
    ]
)

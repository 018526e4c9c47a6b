"""TokenRequest: POST serviceaccounts/NAME/token issues a token that ends with its service account and its bound object."""

import dataclasses
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Any, cast
from uuid import uuid4

from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from app.api.auth.authenticator import AUDIENCE, MASTERS, NODES, User, account_user
from app.api.auth.tokens import issue
from app.api.http import content
from app.api.http.query import create_options, query_of
from app.api.resources.reviews import review_response
from app.api.resources.routes import RequestInfo
from app.kinds.auth import authentication
from app.kinds.auth.authentication import BoundObjectReference, TokenRequest, TokenRequestStatus, faults_in_request
from app.kinds.core.node import KIND as NODE_KIND
from app.kinds.core.secret import KIND as SECRETS
from app.kinds.core.serviceaccount import KIND as ACCOUNTS
from app.kinds.pod.pod import KIND as PODS
from app.kinds.pod.pod import Pod
from app.machinery.base import Kind, Object
from app.machinery.errors import bad_request, conflict, forbidden_error, unprocessable
from app.registry import Need
from app.registry.codec import decode, key_of
from app.registry.verbs.objects import Registry, find, get

_HOUR = 3600
_CLAIM = "authentication.kubernetes.io/"
_BINDABLE = {("v1", kind.name): kind for kind in (PODS, SECRETS, NODE_KIND)}


async def answer(registry: Registry, request: Request, found: RequestInfo) -> Response:
    """Issue the token and return the TokenRequest with it. 400, 403, 404, 409 or 422 if it cannot be issued."""
    options = create_options(query_of(request))
    decoded = await content.read_struct(
        request, TokenRequest, f"{authentication.GROUP}/v1", content.validation_of(options)
    )
    asked = _apply_defaults(decoded.object, found.namespace or "", found.name, registry.now())
    await _check_node(registry, request.state.user, asked, found)
    account = await find(registry, ACCOUNTS, found.namespace or "", found.name)
    needs = [Need(account.key, account.uid)]
    extra: dict[str, tuple[str, ...]] = {f"{_CLAIM}credential-id": (f"JTI={uuid4()}",)}
    if asked.spec.bound_object_ref is not None:
        bound = await _find_bound_object(registry, asked.spec.bound_object_ref, found)
        needs.append(Need(key_of(bound[0], bound[1].metadata.namespace, bound[1].metadata.name), bound[1].metadata.uid))
        extra |= {name: value async for name, value in _claims(registry, *bound)}
    expires_at = registry.now() + timedelta(seconds=asked.spec.expiration_seconds or _HOUR)
    user = dataclasses.replace(
        account_user(found.namespace or "", found.name), uid=account.uid, extra=extra, audiences=asked.spec.audiences
    )
    token = "" if options.is_dry_run else await issue(registry, user, expires_at, needs)
    status = TokenRequestStatus(token=token, expiration_timestamp=expires_at)
    return review_response(request, replace(asked, status=status), decoded.warnings)


def _apply_defaults(asked: TokenRequest, namespace: str, name: str, now: datetime) -> TokenRequest:
    """Return the request with its defaults; 400 or 422 if it is invalid."""
    causes = faults_in_request(asked)
    if causes:
        raise unprocessable("TokenRequest", authentication.GROUP, "", causes)
    meta = asked.metadata
    if (meta.name or name, meta.namespace or namespace) != (name, namespace):
        raise bad_request("the name and namespace of the request must be those of the service account")
    spec = replace(
        asked.spec,
        audiences=asked.spec.audiences or (AUDIENCE,),
        expiration_seconds=asked.spec.expiration_seconds or _HOUR,
    )
    metadata = replace(meta, name=name, namespace=namespace, creation_timestamp=now)
    return replace(asked, metadata=metadata, spec=spec)


async def _find_bound_object(
    registry: Registry, reference: BoundObjectReference, found: RequestInfo
) -> tuple[Kind[Any], Object]:
    """Return the object with which the token ends; 400, 404 or 409 if it cannot be bound."""
    kind = _BINDABLE.get((reference.api_version, reference.kind))
    if kind is None:
        group, _, version = reference.api_version.rpartition("/")
        raise bad_request(f"cannot bind token to object of type {group}/{version}, Kind={reference.kind}")
    obj = decode(kind, await find(registry, kind, found.namespace or "", reference.name))
    account = obj.spec.service_account_name or "default" if isinstance(obj, Pod) else found.name
    if account != found.name:
        raise bad_request(
            f'cannot bind token for serviceaccount "{found.name}" to pod running with serviceaccount "{account}"'
        )
    if reference.uid and reference.uid != obj.metadata.uid:
        why = (
            f"the UID in the bound object reference ({reference.uid}) does not match the UID in record. "
            "The object might have been deleted and then recreated"
        )
        raise conflict(kind.name, reference.name, why)
    return kind, obj


async def _check_node(registry: Registry, user: User, asked: TokenRequest, found: RequestInfo) -> None:
    """Raise 403, as NodeRestriction, unless an agent asks for a token that a pod of its own node mounts."""
    if NODES not in user.groups or MASTERS in user.groups:
        return
    reference = asked.spec.bound_object_ref
    if reference is None or (reference.api_version, reference.kind) != ("v1", "Pod"):
        why = "node requested token not bound to a pod"
    elif not reference.uid:
        why = "node requested token with a pod binding without a uid"
    else:
        head = await get(registry, PODS, found.namespace or "", reference.name)
        pod = cast("Pod", decode(PODS, head)) if head and head.uid == reference.uid else None
        if pod is None or not user.is_node(pod.spec.node_name):
            why = "node requested token bound to a pod scheduled on a different node"
        elif foreign := set(asked.spec.audiences) - _audiences(pod) - {AUDIENCE}:
            why = f'audience "{min(foreign)}" not found in pod spec volume'
        else:
            return
    raise forbidden_error("serviceaccounts", found.name, why)


def _audiences(pod: Pod) -> set[str]:
    sources = (part for volume in pod.spec.volumes if volume.projected for part in volume.projected.sources)
    return {part.service_account_token.audience for part in sources if part.service_account_token}


async def _claims(registry: Registry, kind: Kind[Any], obj: Object) -> AsyncIterator[tuple[str, tuple[str, ...]]]:
    """Yield the token's claims about its bound object."""
    if kind is SECRETS:
        return
    name = kind.singular
    yield f"{_CLAIM}{name}-name", (obj.metadata.name,)
    yield f"{_CLAIM}{name}-uid", (obj.metadata.uid,)
    node_name = cast("Pod", obj).spec.node_name if kind is PODS else ""
    if node_name:
        yield f"{_CLAIM}node-name", (node_name,)
        node = await get(registry, NODE_KIND, "", node_name)
        if node is not None:
            yield f"{_CLAIM}node-uid", (node.uid,)

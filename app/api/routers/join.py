"""Endpoints for joining: administrators make join tokens, and an agent exchanges one for a credential of its node alone.

Under /apis/agents.jobplane.dev/v1/: ca, jointokens, tokens, join, credential, credentials. A node's secret stays with the
agent that made it up, and only its digest comes here, so that to ask again is harmless.
"""

import secrets
import string
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Annotated, NoReturn, cast

import msgspec
from fastapi import APIRouter, Depends, params
from starlette.requests import Request
from starlette.responses import PlainTextResponse

from app.api.auth import token_list
from app.api.auth.authenticator import NODE_PREFIX, NODES, User, bearer, digest_of, path_refusal
from app.api.auth.token_list import API_VERSION, BOOTSTRAPPERS, TokenList, TokenMeta
from app.api.auth.tokens import issue_named
from app.api.dependencies import CurrentUser, RegistryDep, Requires, current_user
from app.api.http import errors
from app.api.http.content import read_body
from app.api.middleware import AGENTS
from app.api.openapi.meta import ListMeta
from app.api.struct_route import EVERY_METHOD, FromBody, FromQuery, S, StructRoute
from app.client.protocol import GROUP, JoinRequest
from app.kinds.core.lease import KIND as LEASES
from app.kinds.core.lease import NODE_NAMESPACE, Lease
from app.kinds.core.node import KIND as NODE
from app.machinery import name_validation
from app.machinery.base import Int64, Struct, at, wire_name
from app.machinery.decoding.decode import decode as decode_body
from app.machinery.errors import ApiError, bad_request, not_found
from app.registry import Admission, Holder, Limits, Renewal
from app.registry.codec import decode
from app.registry.verbs import objects
from app.registry.verbs.deletion import Demand
from app.registry.verbs.objects import Registry, get

BOOTSTRAP_PREFIX = "system:bootstrap:"
MOST_BODY = 16 << 10
LONGEST = timedelta(days=3650)
MOST_USES = 10_000
_ALPHABET = string.ascii_lowercase + string.digits
router = APIRouter(prefix=AGENTS.rstrip("/"), tags=["join"], route_class=StructRoute)


def _may(verb: str, resource: str) -> list[params.Depends]:
    return [Depends(Requires(verb, GROUP, resource))]


class Wanted(Struct):
    """The body of POST jointokens: a token for as many nodes as it has uses. A node's credential is renewed before
    its end, and lasts for ever if 0 is given. With `approve` a node waits until an administrator approves it.
    """

    ttl_seconds: Annotated[Int64, at(0)] = 86400
    uses: Annotated[Int64, at(0)] = 1
    node_ttl_seconds: Annotated[Int64, at(0)] = 30 * 86400
    approve: Annotated[bool, at(0)] = False


class NoOptions(Struct):
    """A body without fields: there is nothing to choose."""


class Joined(msgspec.Struct):
    """The node that the secret now stands for, or will, once an administrator has approved it."""

    node: str
    approved: bool = True


class NodeCredential(msgspec.Struct, rename=wire_name, omit_defaults=True):
    """How long the credential of the request lasts in all, and from now on; neither if it has no end, or is not renewed."""

    life_seconds: float | None = None
    left_seconds: float | None = None


class JoinToken(msgspec.Struct, tag_field="kind", tag="JoinToken", kw_only=True, omit_defaults=True, rename=wire_name):
    """A join token. `token`, its secret, is only in the answer that creates it."""

    api_version: str = msgspec.field(default_factory=lambda: API_VERSION)
    metadata: TokenMeta
    expires_at: datetime | None = None
    uses: int | None = None
    token: str = ""


class JoinTokenList(msgspec.Struct, tag_field="kind", tag="JoinTokenList", kw_only=True, rename=wire_name):
    """The join tokens that are good."""

    api_version: str = API_VERSION
    metadata: ListMeta
    items: list[JoinToken]


class Deleted(msgspec.Struct, tag_field="kind", tag="Status", kw_only=True, rename=wire_name):
    """The Status of a deletion that was done."""

    api_version: str = "v1"
    metadata: ListMeta = msgspec.field(default_factory=ListMeta)
    status: str = "Success"


class PageOptions(Struct):
    """The query of GET tokens."""

    continue_: Annotated[str, at(0, "The token of the page before, to get the next.")] = ""


class SmallBody(FromBody[S]):
    """Dependency: a body of a few fields; none is one with every default."""

    async def __call__(self, request: Request) -> S:
        return decode_body(await read_body(request, MOST_BODY) or b"{}", self.type).object


async def require_join_token(request: Request, user: CurrentUser) -> None:
    """403 unless the request was made with a join token."""
    if BOOTSTRAPPERS not in user.groups:
        raise path_refusal(user, "post", request.scope["path"])


@router.get("/ca", summary="Read the authority's certificate", openapi_extra={"security": []})
async def read_ca(request: Request) -> PlainTextResponse:
    """The certificate as PEM, for everybody: an agent compares it with the hash in its settings."""
    authority: Callable[[], str] = request.app.state.authority
    if not (found := authority()):
        raise errors.no_such_path()
    return PlainTextResponse(found)


@router.post("/jointokens", status_code=201, summary="Create a join token", dependencies=_may("create", "jointokens"))
async def create_join_token(registry: RegistryDep, asked: Annotated[Wanted, Depends(SmallBody(Wanted))]) -> JoinToken:
    _check_between(1, asked.ttl_seconds, int(LONGEST.total_seconds()), "ttlSeconds")
    _check_between(1, asked.uses, MOST_USES, "uses")
    _check_between(0, asked.node_ttl_seconds, int(LONGEST.total_seconds()), "nodeTtlSeconds")
    now = registry.now()
    expires_at = now + timedelta(seconds=asked.ttl_seconds)
    node_life = timedelta(seconds=asked.node_ttl_seconds) if asked.node_ttl_seconds else None
    name = "".join(secrets.choice(_ALPHABET) for _ in range(6))
    user = User(name=BOOTSTRAP_PREFIX + name, groups=(BOOTSTRAPPERS,))
    token = await issue_named(
        registry, name, user, Limits(expires_at, uses=asked.uses, next_life=node_life, approve=asked.approve)
    )
    return _describe(name, now, expires_at, asked.uses, token)


@router.get("/jointokens", summary="List join tokens", dependencies=_may("list", "jointokens"))
async def list_join_tokens(registry: RegistryDep) -> JoinTokenList:
    found = await registry.tokens.of_group(BOOTSTRAPPERS, registry.now())
    items = [_describe(each.id, each.created_at, each.expires_at, each.uses) for each in found]
    return JoinTokenList(metadata=ListMeta(), items=items)


@router.delete("/jointokens/{name:path}", summary="Revoke a join token", dependencies=_may("delete", "jointokens"))
async def revoke_join_token(registry: RegistryDep, name: str) -> Deleted:
    if not await registry.tokens.revoke(BOOTSTRAP_PREFIX + name):
        raise not_found(f"jointokens.{GROUP}", name)
    return Deleted()


@router.get("/tokens", summary="List tokens", dependencies=_may("list", "tokens"))
async def list_tokens(
    registry: RegistryDep, options: Annotated[PageOptions, Depends(FromQuery(PageOptions))]
) -> TokenList:
    """All tokens of every kind, oldest first, page by page."""
    return await token_list.page(registry, options.continue_)


@router.delete("/tokens/{name:path}", summary="Revoke a token", dependencies=_may("delete", "tokens"))
async def revoke_token(registry: RegistryDep, name: str) -> Deleted:
    """End a token of any kind by its id."""
    await token_list.revoke(registry, name)
    return Deleted()


@router.post("/join", status_code=201, summary="Join as a node", dependencies=[Depends(require_join_token)])
async def join(
    request: Request,
    registry: RegistryDep,
    user: CurrentUser,
    asked: Annotated[JoinRequest, Depends(SmallBody(JoinRequest))],
) -> Joined:
    """Exchange a join token for a credential. 409 if the node has one already, 403 if the token is used up."""
    if faults := name_validation.dns_subdomain(asked.node):
        raise bad_request(f"{asked.node} is no name for a node: {'; '.join(faults)}")
    digest = _digest(asked)
    node = await get(registry, NODE, "", asked.node)
    holder = Holder(NODE_PREFIX + asked.node, (NODES,), (asked.node,))
    exists, alive = node is not None, node is not None and await _renews_lease(registry, asked.node)
    by = bytes.fromhex(digest_of(bearer(request.headers.get("authorization")) or ""))
    match await registry.tokens.admit(digest, holder, by, registry.now(), exists=exists, alive=alive):
        case Admission.TAKEN:
            raise _name_taken_error(asked.node)
        case Admission.USED_UP:
            raise _used_up(user.name.removeprefix(BOOTSTRAP_PREFIX))
        case Admission.PENDING:
            return Joined(asked.node, approved=False)
    return Joined(asked.node)


@router.get("/credential", summary="Read the end of a node's credential")
async def read_credential(request: Request, registry: RegistryDep, user: CurrentUser) -> NodeCredential:
    """For agents: when to renew the credential by which they ask."""
    _require_node(request, user)
    found = await registry.tokens.credential(request.state.credential.digest, registry.now())
    if found.life is None or found.left is None:
        return NodeCredential()
    return NodeCredential(found.life.total_seconds(), found.left.total_seconds())


@router.post("/credential", status_code=201, summary="Renew a node's credential")
async def renew_credential(
    request: Request,
    registry: RegistryDep,
    user: CurrentUser,
    asked: Annotated[JoinRequest, Depends(SmallBody(JoinRequest))],
) -> Joined:
    """Let another secret stand for the node of the request's credential; the old one stays good until its end.

    409 while more than half of its life is left, or if it has no end; 429 if the node has five good ones.
    """
    _require_node(request, user)
    if user.nodes != (asked.node,):
        raise path_refusal(user, "post", request.scope["path"])
    holder = Holder(user.name, (NODES,), user.nodes)
    old = request.state.credential.digest
    match await registry.tokens.renew(old, _digest(asked), holder, registry.now()):
        case Renewal.NOT_DUE:
            raise ApiError(409, "Conflict", f"the credential of node {asked.node} is not due for renewal")
        case Renewal.TOO_MANY:
            raise ApiError(
                429, "TooManyRequests", f"node {asked.node} has too many credentials: `jobplane node reset` ends all"
            )
    return Joined(asked.node)


def _require_node(request: Request, user: User) -> None:
    """403 unless the request was made by a node itself, with a credential of its own."""
    if NODES not in user.groups or not user.nodes or user is not request.state.credential.holder:
        raise path_refusal(user, request.method.lower(), request.scope["path"])


@router.post(
    "/credentials/{name}/approve",
    status_code=201,
    summary="Approve a node",
    dependencies=_may("approve", "credentials"),
)
async def approve_node(
    registry: RegistryDep, name: str, _: Annotated[NoOptions, Depends(SmallBody(NoOptions))]
) -> Joined:
    """Let a node in that has joined by a join token with `approve`. 404 if none of this name waits."""
    if not await registry.tokens.approve(NODE_PREFIX + name, (name,), registry.now()):
        why = f'no node "{name}" waits for approval: `jobplane token list` shows those that do as Pending'
        raise ApiError(404, "NotFound", why, name=name, group=GROUP, kind="credentials")
    return Joined(name)


@router.delete("/credentials/{name:path}", summary="Reset a node", dependencies=_may("delete", "credentials"))
async def reset_node(registry: RegistryDep, name: str) -> Deleted:
    """Revoke every credential of a node, so that another machine may join as it."""
    revoked = await registry.tokens.revoke(NODE_PREFIX + name, (name,))
    try:  # or the node would count as alive until its lease ends
        await objects.delete(registry, LEASES, NODE_NAMESPACE, name, Demand())
    except ApiError as error:
        if error.code != 404:
            raise
        if not revoked:
            raise not_found(f"credentials.{GROUP}", name) from None
    return Deleted()


@router.api_route("/{path:path}", methods=EVERY_METHOD, include_in_schema=False, dependencies=[Depends(current_user)])
async def refuse() -> NoReturn:
    """404 for any other path or method, after authentication."""
    raise errors.no_such_path()


def _digest(asked: JoinRequest) -> bytes:
    if len(asked.digest) != 64 or set(asked.digest) - set(string.hexdigits):
        raise bad_request("digest must be a SHA-256, in hexadecimal")
    return bytes.fromhex(asked.digest)


async def _renews_lease(registry: Registry, node: str) -> bool:
    """Return whether an agent of that name is alive."""
    head = await get(registry, LEASES, NODE_NAMESPACE, node)
    spec = cast("Lease", decode(LEASES, head)).spec if head else None
    if spec is None or not spec.renew_time:
        return False
    renewed_at = datetime.fromisoformat(spec.renew_time)
    # Not the end of the lease: a lease of the year 9999 has none that a datetime could hold.
    return renewed_at > registry.now() - timedelta(seconds=spec.lease_duration_seconds or 0)


def _describe(
    name: str, made_at: datetime, expires_at: datetime | None, uses: int | None, token: str = ""
) -> JoinToken:
    ends = expires_at.replace(microsecond=0) if expires_at else None
    return JoinToken(metadata=TokenMeta(name, made_at.replace(microsecond=0)), expires_at=ends, uses=uses, token=token)


def _name_taken_error(node: str) -> ApiError:
    why = (
        f'node "{node}" has a credential already: an agent of that name is or was running elsewhere. Give this machine '
        f"another --node-name; or, if it takes that one's place, run `jobplane node reset {node}` first"
    )
    return ApiError(409, "AlreadyExists", why, name=node, kind="nodes")


def _used_up(name: str) -> ApiError:
    why = (
        f'join token "{name}" is used up or revoked: make another by `jobplane token create`, with --uses N if N machines '
        "are to join by it"
    )
    return ApiError(403, "Forbidden", why, name=name, group=GROUP, kind="jointokens")


def _check_between(least: int, value: int, most: int, name: str) -> None:
    if not least <= value <= most:
        raise bad_request(f"{name} must be between {least} and {most}")

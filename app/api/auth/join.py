"""Joining: administrators make join tokens, and an agent exchanges one for a credential of its node alone.

Under /apis/agents.jobplane.dev/v1/:
    GET ca                      the authority's certificate, for everybody: an agent compares it with the hash it was told
    POST jointokens             {"ttlSeconds": 86400, "uses": 1, "nodeTtlSeconds": 0}: a token, shown this once, for as many
                                nodes as it has uses; their credentials last for nodeTtlSeconds, or, if 0, for ever
    GET jointokens              those that are good; DELETE jointokens/ID revokes one
    GET tokens                  all tokens of every kind, page by page; DELETE tokens/ID revokes one
    POST join                   {"node": NAME, "digest": SHA-256}, by a join token: let the secret with this digest stand for
                                the node. The secret stays with the agent that made it up, so to ask again is harmless
    DELETE credentials/NODE     whoever spoke for the node no longer does, and another machine may join as it
"""

import secrets
import string
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any, cast

import msgspec
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from app.api.auth import impersonation, token_list
from app.api.auth.authenticator import (
    NODE_PREFIX,
    NODES,
    Action,
    Authenticator,
    User,
    bearer,
    check,
    digest_of,
    path_refusal,
)
from app.api.auth.token_list import BOOTSTRAPPERS, GROUP
from app.api.auth.tokens import issue_named
from app.api.http import errors
from app.api.http.content import read_body
from app.api.http.query import first
from app.kinds.core.lease import KIND as LEASES
from app.kinds.core.lease import NODE_NAMESPACE, Lease
from app.kinds.core.node import KIND as NODE
from app.machinery import name_validation
from app.machinery.base import Int64, Struct, at
from app.machinery.decode import decode as decode_body
from app.machinery.errors import ApiError, bad_request, not_found
from app.registry import objects
from app.registry.codec import decode, key_of
from app.registry.deletion import Demand
from app.registry.objects import Registry
from app.store import Admission, Holder, Limits

PREFIX = "/apis/agents.jobplane.dev/v1/"
BOOTSTRAP_PREFIX = "system:bootstrap:"
MOST_BODY = 16 << 10
LONGEST = timedelta(days=3650)
MOST_USES = 10_000
_ALPHABET = string.ascii_lowercase + string.digits


class Wanted(Struct):
    """The body of POST jointokens."""

    ttl_seconds: Annotated[Int64, at(0)] = 86400
    uses: Annotated[Int64, at(0)] = 1
    node_ttl_seconds: Annotated[Int64, at(0)] = 0


class Joining(Struct):
    """The body of POST join."""

    node: Annotated[str, at(0)] = ""
    digest: Annotated[str, at(0)] = ""


@dataclass(frozen=True)
class JoinApi:
    """The application under `PREFIX`, but for what agents call all the time. `authority`: whom clients are to trust, PEM."""

    registry: Registry
    authenticator: Authenticator
    authority: Callable[[], str] = str

    async def answer(self, request: Request) -> Response:
        what, _, name = request.scope["path"].removeprefix(PREFIX).strip("/").partition("/")
        if (request.method, what, name) == ("GET", "ca", ""):
            if not (found := self.authority()):
                raise errors.no_such_path()
            return PlainTextResponse(found)
        user = await impersonation.user_of(self.registry, self.authenticator, request)
        match request.method, what, bool(name):
            case "POST", "join", False:
                return await self._join(user, request)
            case "POST", "jointokens", False:
                await check(self.registry, user, Action("create", GROUP, what))
                return await self._make(await read_body(request, MOST_BODY))
            case "GET", "jointokens", False:
                await check(self.registry, user, Action("list", GROUP, what))
                return await self._list()
            case "DELETE", "jointokens", True:
                await check(self.registry, user, Action("delete", GROUP, what, name=name))
                return await self._revoke(name)
            case "GET", "tokens", False:
                await check(self.registry, user, Action("list", GROUP, what))
                after = first(request.query_params.multi_items(), "continue") or ""
                return _json(await token_list.page(self.registry, after))
            case "DELETE", "tokens", True:
                await check(self.registry, user, Action("delete", GROUP, what, name=name))
                await token_list.revoke(self.registry, name)
                return _done()
            case "DELETE", "credentials", True:
                await check(self.registry, user, Action("delete", GROUP, what, name=name))
                return await self._reset(name)
        raise errors.no_such_path()

    async def _make(self, body: bytes) -> Response:
        asked = decode_body(body or b"{}", Wanted).object
        _check_between(1, asked.ttl_seconds, int(LONGEST.total_seconds()), "ttlSeconds")
        _check_between(1, asked.uses, MOST_USES, "uses")
        _check_between(0, asked.node_ttl_seconds, int(LONGEST.total_seconds()), "nodeTtlSeconds")
        now = self.registry.now()
        expires_at = now + timedelta(seconds=asked.ttl_seconds)
        node_life = timedelta(seconds=asked.node_ttl_seconds) if asked.node_ttl_seconds else None
        name = "".join(secrets.choice(_ALPHABET) for _ in range(6))
        user = User(name=BOOTSTRAP_PREFIX + name, groups=(BOOTSTRAPPERS,))
        limits = Limits(expires_at, uses=asked.uses, node_life=node_life)
        token = await issue_named(self.registry, name, user, limits)
        return _json(_shown(name, now, expires_at, asked.uses) | {"token": token}, 201)

    async def _list(self) -> Response:
        found = await self.registry.store.tokens.of_group(BOOTSTRAPPERS, self.registry.now())
        items = [_shown(each.id, each.created_at, each.expires_at, each.uses) for each in found]
        return _json({"kind": "JoinTokenList", "apiVersion": f"{GROUP}/v1", "metadata": {}, "items": items})

    async def _revoke(self, name: str) -> Response:
        if not await self.registry.store.tokens.revoke(BOOTSTRAP_PREFIX + name):
            raise not_found(f"jointokens.{GROUP}", name)
        return _done()

    async def _join(self, user: User, request: Request) -> Response:
        if BOOTSTRAPPERS not in user.groups:
            raise path_refusal(user, "post", request.scope["path"])
        asked = decode_body(await read_body(request, MOST_BODY) or b"{}", Joining).object
        if faults := name_validation.dns_subdomain(asked.node):
            raise bad_request(f"{asked.node} is no name for a node: {'; '.join(faults)}")
        if len(asked.digest) != 64 or set(asked.digest) - set(string.hexdigits):
            raise bad_request("digest must be a SHA-256, in hexadecimal")
        node = await self.registry.store.get(key_of(NODE, "", asked.node))
        holder = Holder(NODE_PREFIX + asked.node, (NODES,), (asked.node,))
        exists, alive = node is not None, node is not None and await self._is_heard(asked.node)
        tokens, digest = self.registry.store.tokens, bytes.fromhex(asked.digest)
        by = bytes.fromhex(digest_of(bearer(request.headers.get("authorization")) or ""))
        match await tokens.admit(digest, holder, by, self.registry.now(), exists=exists, alive=alive):
            case Admission.TAKEN:
                raise _taken(asked.node)
            case Admission.USED_UP:
                raise _used_up(user.name.removeprefix(BOOTSTRAP_PREFIX))
        return _json({"node": asked.node}, 201)

    async def _is_heard(self, node: str) -> bool:
        """Whether somebody keeps its lease."""
        head = await self.registry.store.get(key_of(LEASES, NODE_NAMESPACE, node))
        spec = cast("Lease", decode(LEASES, head)).spec if head else None
        if spec is None or not spec.renew_time:
            return False
        renewed_at = datetime.fromisoformat(spec.renew_time)
        # Not the end of the lease: a lease of the year 9999 has none that a datetime could hold.
        return renewed_at > self.registry.now() - timedelta(seconds=spec.lease_duration_seconds or 0)

    async def _reset(self, node: str) -> Response:
        revoked = await self.registry.store.tokens.revoke(NODE_PREFIX + node, (node,))
        try:  # or it would seem to be heard until the lease has run out
            await objects.delete(self.registry, LEASES, NODE_NAMESPACE, node, Demand())
        except ApiError as error:
            if error.code != 404:
                raise
            if not revoked:
                raise not_found(f"credentials.{GROUP}", node) from None
        return _done()


def _taken(node: str) -> ApiError:
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


def _shown(name: str, made_at: datetime, expires_at: datetime | None, uses: int | None) -> dict[str, Any]:
    metadata = {"name": name, "creationTimestamp": made_at.replace(microsecond=0)}
    shown: dict[str, Any] = {"kind": "JoinToken", "apiVersion": f"{GROUP}/v1", "metadata": metadata}
    shown |= {"expiresAt": expires_at.replace(microsecond=0)} if expires_at else {}
    return shown | ({} if uses is None else {"uses": uses})


def _done() -> Response:
    return _json({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"})


def _json(value: object, code: int = 200) -> Response:
    return Response(msgspec.json.encode(value), code, media_type="application/json")

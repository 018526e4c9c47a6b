"""Token list for administrators: all tokens by pages, without secrets, and revoked by their ids.

Called for requests under /apis/agents.jobplane.dev/v1/tokens, and by `jobplane token` on the database itself.
"""

from datetime import UTC, datetime

import msgspec

from app.api.auth.authenticator import MASTERS, NODES
from app.api.openapi.meta import ListMeta
from app.client.protocol import GROUP
from app.machinery.base import wire_name
from app.machinery.errors import bad_request, not_found
from app.plans.admission.rbac import ACCOUNT_PREFIX
from app.registry import Listed, Place
from app.registry.verbs.objects import Registry

API_VERSION = f"{GROUP}/v1"
BOOTSTRAPPERS = "system:bootstrappers"
MOST = 500  # in a page


class TokenMeta(msgspec.Struct, rename=wire_name):
    """The id of a token, and when it was made, in whole seconds."""

    name: str
    creation_timestamp: datetime


class Token(msgspec.Struct, tag_field="kind", tag="Token", kw_only=True, omit_defaults=True, rename=wire_name):
    """A token of any kind, without its secret. `file`: name of the file that holds it, if one does."""

    api_version: str = msgspec.field(default_factory=lambda: API_VERSION)
    metadata: TokenMeta
    type: str
    user: str
    state: str
    groups: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    expires_at: datetime | None = None
    file: str = ""
    uses: int | None = None


class TokenList(msgspec.Struct, tag_field="kind", tag="TokenList", kw_only=True, rename=wire_name):
    """A page of tokens, oldest first."""

    api_version: str = API_VERSION
    metadata: ListMeta
    items: list[Token]


async def page(registry: Registry, continue_: str = "") -> TokenList:
    """Up to `MOST` tokens of every kind. 400 if `continue_` is none of ours."""
    found = await registry.tokens.page(MOST + 1, _place(continue_) if continue_ else None)
    shown, more = found[:MOST], found[MOST:]
    last = shown[-1] if more else None
    metadata = ListMeta(continue_=f"{last.created_at.isoformat()},{last.id}") if last else ListMeta()
    return TokenList(metadata=metadata, items=[_describe(each, registry.now()) for each in shown])


async def revoke(registry: Registry, id_: str) -> None:
    """End a token of any kind; 404 if there is none of this id."""
    if not await registry.tokens.revoke_id(id_):
        raise not_found(f"tokens.{GROUP}", id_)


def _describe(token: Listed, now: datetime) -> Token:
    return Token(
        metadata=TokenMeta(token.id, token.created_at.replace(microsecond=0)),
        type=type_of(token),
        user=token.username,
        state=state_of(token, now),
        groups=tuple(token.groups),
        nodes=tuple(token.nodes),
        expires_at=token.expires_at.replace(microsecond=0) if token.expires_at else None,
        file=token.file.rpartition("/")[2],
        uses=token.uses,
    )


def type_of(token: Listed) -> str:
    """The token's purpose: Join, ServiceAccount, Node, Admin or User."""
    if BOOTSTRAPPERS in token.groups:
        return "Join"
    if token.username.startswith(ACCOUNT_PREFIX):
        return "ServiceAccount"
    if NODES in token.groups:
        return "Node"
    return "Admin" if MASTERS in token.groups else "User"


def state_of(token: Listed, now: datetime) -> str:
    """Active, Pending (a node waits for approval), or why it is no longer good: Revoked, Expired, Orphaned (what it was bound
    to is gone), UsedUp.
    """
    if token.revoked:
        return "Revoked"
    if token.expires_at and token.expires_at <= now:
        return "Expired"
    if token.orphaned:
        return "Orphaned"
    if token.pending:
        return "Pending"
    return "UsedUp" if token.uses == 0 else "Active"


def _place(continue_: str) -> Place:
    at, _, id_ = continue_.partition(",")
    try:
        created_at = datetime.fromisoformat(at)
        is_whole = created_at.tzinfo is not None and bool(created_at.astimezone(UTC))
    except (ValueError, OverflowError):
        raise bad_request("continue is not a place in a list of tokens") from None
    if not is_whole or "\0" in id_:
        raise bad_request("continue is not a place in a list of tokens")
    return Place(created_at, id_)

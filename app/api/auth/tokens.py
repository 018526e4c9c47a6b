"""Bearer tokens: issues them and looks them up in the store, which holds only their digests."""

import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import datetime

from app.api.auth.authenticator import AUTHENTICATED, Tokens, User, account_user, digest_of
from app.kinds.core.serviceaccount import KIND as ACCOUNTS
from app.registry import Holder, Limits, Need
from app.registry.verbs.objects import Registry, find


class StoredTokens(Tokens):
    """Looks up tokens in the database, for the authenticator. `take_in` puts those there that files have got meanwhile."""

    def __init__(self, registry: Registry, take_in: Callable[[], Awaitable[None]] | None = None) -> None:
        self._registry, self._take_in = registry, take_in

    async def lookup(self, digest: str) -> User | None:
        if self._take_in is not None:
            await self._take_in()
        found = await self._registry.tokens.holder(bytes.fromhex(digest), self._registry.now())
        if found is None:
            return None
        return User(
            name=found.name,
            groups=tuple(dict.fromkeys((*found.groups, AUTHENTICATED))),
            nodes=tuple(found.nodes),
            uid=found.uid,
            extra={name: tuple(values) for name, values in found.extra.items()},
            audiences=tuple(found.audiences),
        )


async def issue(registry: Registry, user: User, expires_at: datetime | None = None, needs: Sequence[Need] = ()) -> str:
    """Issue a token for a user, valid while the objects in `needs` exist. The text is not stored, only its digest."""
    token = secrets.token_urlsafe(32)
    await registry.tokens.forget_expired(registry.now())
    await keep(registry, token, user, Limits(expires_at, needs))
    return token


async def issue_named(registry: Registry, name: str, user: User, limits: Limits) -> str:
    """Issue a token with a public name as its first part, by which it is listed and revoked."""
    token = f"{name}.{secrets.token_urlsafe(24)}"
    await registry.tokens.forget_expired(registry.now())
    await keep(registry, token, user, limits)
    return token


async def keep(registry: Registry, token: str, user: User, limits: Limits) -> None:
    """Let a known token stand for a user; harmless to repeat."""
    await registry.tokens.keep(bytes.fromhex(digest_of(token)), holder_of(user), limits)


def holder_of(user: User) -> Holder:
    return Holder(user.name, user.groups, user.nodes, user.uid, user.extra, user.audiences)


async def issue_for_account(registry: Registry, namespace: str, name: str, expires_at: datetime | None) -> str:
    """Issue a token for a service account, valid while the account exists; 404 if there is no such account."""
    account = await find(registry, ACCOUNTS, namespace, name)
    user = replace(account_user(namespace, name), uid=account.uid)
    return await issue(registry, user, expires_at, [Need(account.key, account.uid)])

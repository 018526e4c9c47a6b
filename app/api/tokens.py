"""Bearer tokens as the store keeps them: made here, looked up here. Only digests are stored."""

import secrets
from datetime import datetime

from app.api.auth import AUTHENTICATED, Tokens, User, digest_of
from app.registry.objects import Registry


class StoredTokens(Tokens):
    """Looks tokens up in the database."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    async def lookup(self, digest: str) -> User | None:
        found = await self._registry.store.user(bytes.fromhex(digest), self._registry.now())
        if found is None:
            return None
        name, groups, nodes = found
        return User(name=name, groups=(*groups, AUTHENTICATED), nodes=nodes)


async def issue(registry: Registry, user: User, expires_at: datetime | None = None) -> str:
    """A new token for a user. It is shown once: nobody can read it from the database."""
    token = secrets.token_urlsafe(32)
    await keep(registry, token, user, expires_at)
    return token


async def keep(registry: Registry, token: str, user: User, expires_at: datetime | None = None) -> None:
    """Let a known token stand for a user; harmless to repeat."""
    digest, groups, nodes = bytes.fromhex(digest_of(token)), list(user.groups), list(user.nodes)
    await registry.store.keep_token(digest, user.name, groups, nodes, expires_at)

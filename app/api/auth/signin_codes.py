"""Sign-in codes of the page: each is exchanged, once and within minutes, for a token of the user who made it.

Made by `app.api.routers.signin` for `jobplane page`, and by `app.api.serve` for the terminal of `jobplane up`. A code is kept
like a token: as a digest in the database, so that any replica takes it. It has 192 random bits, so that guesses are hopeless;
its audience is the page, so that it is good for no other request.
"""

import secrets
from dataclasses import replace
from datetime import datetime, timedelta
from typing import NamedTuple

from app.api.auth.authenticator import User, digest_of
from app.api.auth.tokens import keep
from app.machinery.errors import ApiError
from app.registry import Limits
from app.registry.verbs.objects import Registry

AUDIENCE = "page.jobplane.dev"
CODE_LIFE = timedelta(minutes=10)
TOKEN_LIFE = timedelta(hours=12)


class PageToken(NamedTuple):
    """A token for the page, and when it ends."""

    token: str
    expires_at: datetime


async def create_code(registry: Registry, user: User) -> str:
    """Create a code for a user, and forget what has expired. What it is exchanged for ends with the user's own credential."""
    code = secrets.token_urlsafe(24)
    now = registry.now()
    await registry.tokens.forget_expired(now)
    ends = now + CODE_LIFE
    life = user.expires_at - ends if user.expires_at else None
    await keep(registry, code, replace(user, audiences=(AUDIENCE,)), Limits(ends, next_life=life))
    return code


async def redeem_code(registry: Registry, code: str) -> PageToken:
    """Exchange a code for a token of the same user. 403 if it was used, has expired, or never was one."""
    token, now = secrets.token_urlsafe(32), registry.now()
    expires_at = now + TOKEN_LIFE
    old, new = (bytes.fromhex(digest_of(each)) for each in (code, token))
    ends = await registry.tokens.exchange(old, new, AUDIENCE, now, expires_at)
    if ends is None:
        why = "this sign-in code was used before or has expired: run `jobplane page` for another"
        raise ApiError(403, "Forbidden", why)
    return PageToken(token, ends)


def signin_link(server: str, code: str) -> str:
    """The address of the page that signs in by itself. The code follows the #, which browsers do not send."""
    return f"{server}/ui#signin={code}"

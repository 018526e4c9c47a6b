"""OIDC: users by ID tokens of one identity provider, checked as kube-apiserver checks them.

`identity_providers` makes a `Verifier` for each provider, and asks it about tokens that name its issuer. The signature and the
times are checked by joserfc; who the user is, by `claim_mappings`. A token's header chooses one of the provider's published keys
by its id, and an algorithm of those that are allowed; nothing else in it (jku, x5u, jwk) is read.
"""

import base64
import binascii
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import msgspec
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jws import JWSRegistry
from joserfc.jwt import JWTClaimsRegistry

from app.api.auth.authentication_configuration import JWTAuthenticator
from app.api.auth.authenticator import User, digest_of
from app.api.auth.claim_mappings import ClaimMapper, Claims, OidcError
from app.api.auth.oidc_keys import Key
from app.structured_logging import Logger

SKEW_SECONDS = 300  # of the provider's clock, for `nbf` and `iat`; as in Kubernetes, `exp` has none
LONGEST = timedelta(days=365)
MOST_TOKENS = 10_000  # remembered at once
MOST_KEYS = 8  # tried for a token without a key id
MOST_HEADER = 8 << 10  # bytes; a certificate chain may be in it

logger = Logger(__name__)


class _Issuer(msgspec.Struct):
    iss: str = ""


class _Header(msgspec.Struct):
    alg: str = ""
    kid: str = ""


def _peek(part: str, type_: Callable[..., Any]) -> Any:
    """Decode one part of a token that is not verified; OidcError if it is malformed."""
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(f"{part}{'=' * (-len(part) % 4)}"), type=type_)
    except (msgspec.MsgspecError, binascii.Error, ValueError, RecursionError):
        raise OidcError("the token is malformed") from None


def issuer_of(token: str) -> str:
    """Return whom a token names as its issuer, which proves nothing; "" for tokens of our own: they have no two dots."""
    if token.count(".") != 2 or not token.startswith("eyJ"):
        return ""
    try:
        issuer: str = _peek(token.split(".")[1], _Issuer).iss
    except OidcError:
        return ""
    return issuer


class Verifier:
    """Finds the users of tokens of one issuer. Verified tokens are remembered until they end; `find_keys`: by key id.

    ValueError names an expression of the provider's rules that cannot be compiled.
    """

    def __init__(
        self,
        provider: JWTAuthenticator,
        algorithms: tuple[str, ...],
        find_keys: Callable[[str], Awaitable[Sequence[Key]]],
        now: Callable[[], datetime],
        most: int = MOST_TOKENS,
    ) -> None:
        self.provider, self._mapper = provider, ClaimMapper(provider)
        self._algorithms, self._find_keys, self._now, self._most = algorithms, find_keys, now, most
        self._verified: dict[str, User] = {}
        self._registry = JWSRegistry(algorithms=algorithms, strict_check_header=False)
        self._registry.max_header_length = MOST_HEADER

    async def lookup(self, token: str) -> User | None:
        """Return the user of a token of this issuer; None, with a line in the log, if it is not accepted."""
        digest, now = digest_of(token), self._now()
        known = self._verified.get(digest)
        if known is not None and known.expires_at and now < known.expires_at:
            return known
        self._verified.pop(digest, None)
        try:
            user = await self._verify(token)
        except OidcError as error:
            logger.info("a token of the identity provider is not accepted", reason=str(error))
            return None
        self._remember(digest, user, now)
        return user

    async def _verify(self, token: str) -> User:
        header = _peek(token.split(".", maxsplit=1)[0], _Header)
        if header.alg not in self._algorithms:
            raise OidcError(f"its algorithm is none of {', '.join(self._algorithms)}")
        keys = await self._find_keys(header.kid)
        if not keys:
            raise OidcError("no key of the provider has signed it, or the provider cannot be reached")
        claims = self._check_signature(token, keys[:MOST_KEYS])
        now = self._now()
        self._check_claims(claims, now)
        user = self._mapper.user_of(claims)
        return _with_end(user, claims, now)

    def _check_signature(self, token: str, keys: Sequence[Key]) -> Claims:
        reason = ""
        for key in keys:
            try:
                return jwt.decode(token, key, self._algorithms, self._registry).claims
            except Exception as error:  # a stranger's token, whatever it makes the library raise, is refused
                reason = type(error).__name__  # its text may be the stranger's
        raise OidcError(f"the signature cannot be verified: {reason}")

    def _check_claims(self, claims: Claims, now: datetime) -> None:
        seconds = int(now.timestamp())
        identity = JWTClaimsRegistry(
            now=seconds,
            iss={"essential": True, "value": self.provider.issuer.url},
            aud={"essential": True, "values": list(self.provider.issuer.audiences)},
            exp={"essential": True},
        )
        begun = JWTClaimsRegistry(now=seconds, leeway=SKEW_SECONDS)
        try:
            identity.validate({name: claims[name] for name in ("iss", "aud", "exp") if name in claims})
            begun.validate({name: claims[name] for name in ("nbf", "iat") if name in claims})
        except JoseError as error:
            raise OidcError(str(error)) from error

    def _remember(self, digest: str, user: User, now: datetime) -> None:
        if len(self._verified) >= self._most:
            self._verified = {
                each: known for each, known in self._verified.items() if known.expires_at and now < known.expires_at
            }
        if len(self._verified) >= self._most:
            del self._verified[next(iter(self._verified))]
        self._verified[digest] = user


def _with_end(user: User, claims: Claims, now: datetime) -> User:
    try:
        left = min(claims["exp"] - now.timestamp(), LONGEST.total_seconds())
        end = now + timedelta(seconds=left)
    except (ValueError, OverflowError):
        raise OidcError("claim exp is no time") from None
    return replace(user, expires_at=end)

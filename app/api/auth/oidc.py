"""OIDC: users by ID tokens of one identity provider, checked as kube-apiserver checks them.

`app.api.serve` makes the `Verifier` if an issuer is set, and the authenticator asks it about tokens that name that issuer. The
signature and the claims are checked by joserfc. A token's header chooses one of the provider's published keys by its id, and
an algorithm of those that are allowed; nothing else in it (jku, x5u, jwk) is read.
"""

import base64
import binascii
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jws import JWSRegistry
from joserfc.jwt import JWTClaimsRegistry

from app.api.auth.authenticator import AUTHENTICATED, User, digest_of
from app.api.auth.oidc_keys import Key
from app.structured_logging import Logger

SKEW_SECONDS = 300  # of the provider's clock, for `nbf` and `iat`; as in Kubernetes, `exp` has none
LONGEST = timedelta(days=365)
MOST_TOKENS = 10_000  # remembered at once
MOST_KEYS = 8  # tried for a token without a key id
MOST_HEADER = 8 << 10  # bytes; a certificate chain may be in it
_RESERVED = "system:"

logger = Logger(__name__)
Claims = Mapping[str, Any]


class OidcError(Exception):
    """A token that is not accepted; the text says why, for the log."""


@dataclass(frozen=True, kw_only=True)
class OidcConfig:
    """Settings of the identity provider, with the meanings of kube-apiserver's flags `--oidc-*`."""

    issuer_url: str
    client_id: str
    username_claim: str = "sub"
    username_prefix: str = ""
    groups_claim: str = ""
    groups_prefix: str = ""
    required_claims: Mapping[str, str] = field(default_factory=dict)
    ca_file: Path | None = None
    signing_algs: tuple[str, ...] = ("RS256",)


def user_of_claims(config: OidcConfig, claims: Claims) -> User:
    """Map the claims of a verified token to its user. OidcError for a name that may not be used, or a missing claim."""
    for name, value in config.required_claims.items():
        if claims.get(name) != value:
            raise OidcError(f"claim {name} is not {value}")
    name = _prefix_of(config) + _username(config, claims)
    if name.startswith(_RESERVED):
        raise OidcError(f"username {name} begins with {_RESERVED}, which is reserved")
    jti = claims.get("jti")
    return User(
        name=name,
        groups=tuple(dict.fromkeys((*_groups(config, claims), AUTHENTICATED))),
        extra={"authentication.kubernetes.io/credential-id": (f"JTI={jti}",)} if isinstance(jti, str) and jti else {},
    )


def _prefix_of(config: OidcConfig) -> str:
    """As kube-apiserver: `-` is none; without a prefix, names other than e-mail addresses get the issuer's."""
    if config.username_prefix == "-":
        return ""
    if not config.username_prefix and config.username_claim != "email":
        return f"{config.issuer_url}#"
    return config.username_prefix


def _username(config: OidcConfig, claims: Claims) -> str:
    name = claims.get(config.username_claim)
    if not isinstance(name, str) or not name or "\0" in name:
        raise OidcError(f"claim {config.username_claim} is missing or no string")
    if config.username_claim == "email" and claims.get("email_verified", True) is not True:
        raise OidcError("the e-mail address is not verified")
    return name


def _groups(config: OidcConfig, claims: Claims) -> Sequence[str]:
    """The groups of a token. Names of the cluster's own groups, `system:...`, are ignored: no provider may give them."""
    found = claims.get(config.groups_claim, ()) if config.groups_claim else ()
    names = [found] if isinstance(found, str) else found
    if not isinstance(names, list | tuple) or not all(isinstance(each, str) and "\0" not in each for each in names):
        raise OidcError(f"claim {config.groups_claim} is no list of strings")
    prefixed = (f"{config.groups_prefix}{each}" for each in names)
    return [each for each in prefixed if not each.startswith(_RESERVED)]


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


class Verifier:
    """Finds the users of tokens of one issuer. Verified tokens are remembered until they end; `find_keys`: by key id."""

    def __init__(
        self,
        config: OidcConfig,
        find_keys: Callable[[str], Awaitable[Sequence[Key]]],
        now: Callable[[], datetime],
        most: int = MOST_TOKENS,
    ) -> None:
        self._config, self._find_keys, self._now, self._most = config, find_keys, now, most
        self._verified: dict[str, User] = {}
        self._registry = JWSRegistry(algorithms=config.signing_algs, strict_check_header=False)
        self._registry.max_header_length = MOST_HEADER

    def is_issuer_of(self, token: str) -> bool:
        """Return whether a token says that it is of this issuer. Tokens of our own have no two dots."""
        if token.count(".") != 2 or not token.startswith("eyJ"):
            return False
        try:
            issuer: str = _peek(token.split(".")[1], _Issuer).iss
        except OidcError:
            return False
        return issuer == self._config.issuer_url

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
        if header.alg not in self._config.signing_algs:
            raise OidcError(f"its algorithm is none of {', '.join(self._config.signing_algs)}")
        keys = await self._find_keys(header.kid)
        if not keys:
            raise OidcError("no key of the provider has signed it, or the provider cannot be reached")
        claims = self._check_signature(token, keys[:MOST_KEYS])
        now = self._now()
        self._check_claims(claims, now)
        user = user_of_claims(self._config, claims)
        return _with_end(user, claims, now)

    def _check_signature(self, token: str, keys: Sequence[Key]) -> Claims:
        reason = ""
        for key in keys:
            try:
                return jwt.decode(token, key, self._config.signing_algs, self._registry).claims
            except Exception as error:  # a stranger's token, whatever it makes the library raise, is refused
                reason = type(error).__name__  # its text may be the stranger's
        raise OidcError(f"the signature cannot be verified: {reason}")

    def _check_claims(self, claims: Claims, now: datetime) -> None:
        seconds = int(now.timestamp())
        identity = JWTClaimsRegistry(
            now=seconds,
            iss={"essential": True, "value": self._config.issuer_url},
            aud={"essential": True, "value": self._config.client_id},
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
    return User(name=user.name, groups=user.groups, extra=user.extra, expires_at=end)

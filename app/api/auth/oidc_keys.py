"""Keys of an identity provider: found by OIDC discovery, kept, and fetched again when a token names one that is not there.

`app.api.auth.oidc` asks for keys by their id. A provider that cannot be reached holds nobody but the tokens that need it: the
keys that are there stay good, and it is asked again after `PAUSE_SECONDS` at the earliest, whatever tokens come.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import httpx
import msgspec
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, RSAKey

from app.api.auth.authentication_configuration import Issuer
from app.client.api import context
from app.structured_logging import Logger

PAUSE_SECONDS = 10.0  # from one fetch to the next
REFRESH_SECONDS = 600.0  # after which keys are fetched again while they are used, so that a withdrawn one ends
PATIENCE_SECONDS = 10.0  # for the provider to answer
MOST_BYTES = 1 << 20  # of an answer
MOST_KEYS = 200
_SHORTEST_RSA = 2048  # bits
_DISCOVERY = "/.well-known/openid-configuration"

logger = Logger(__name__)
Key = RSAKey | ECKey
_TYPES: Mapping[str, type[RSAKey] | type[ECKey]] = {"RSA": RSAKey, "EC": ECKey}


class ProviderError(Exception):
    """The provider's answer cannot be used; the text says why."""


class _Discovery(msgspec.Struct):
    issuer: str = ""
    jwks_uri: str = ""


class _JwkSet(msgspec.Struct):
    keys: list[dict[str, Any]] = []


class Provider:
    """Fetches the keys of an issuer over HTTPS. Raises OSError for an authority that holds no certificate."""

    def __init__(self, issuer: Issuer) -> None:
        self._issuer = issuer.url
        self._discovery = issuer.discovery_url or issuer.url.rstrip("/") + _DISCOVERY
        self._tls: ssl.SSLContext = context(None, ca_data=issuer.certificate_authority or None)

    async def fetch_keys(self) -> list[Key]:
        """Return the public keys that sign. ProviderError, httpx.HTTPError or OSError if they are not to be had."""
        async with asyncio.timeout(PATIENCE_SECONDS), httpx.AsyncClient(verify=self._tls) as client:
            found = await _get(client, self._discovery, _Discovery)
            if found.issuer != self._issuer:
                raise ProviderError(f"its configuration names another issuer, {found.issuer[:200]}")
            if urlsplit(found.jwks_uri).scheme != "https":
                raise ProviderError("its jwks_uri is no https:// URL")
            return usable_keys((await _get(client, found.jwks_uri, _JwkSet)).keys)


async def _get(client: httpx.AsyncClient, url: str, type_: Callable[..., Any]) -> Any:
    """GET a document. Redirects are not followed."""
    body = bytearray()
    async with client.stream("GET", url) as answer:
        if answer.status_code != 200:
            raise ProviderError(f"{url} answered {answer.status_code}")
        async for part in answer.aiter_bytes():
            body += part
            if len(body) > MOST_BYTES:
                raise ProviderError(f"{url} answered more than {MOST_BYTES} bytes")
    try:
        return msgspec.json.decode(bytes(body), type=type_)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ProviderError(f"{url} answered no such document: {error}") from error


def usable_keys(described: Sequence[Mapping[str, Any]]) -> list[Key]:
    """Return the RSA and EC keys for signatures; others, such as secrets (oct), and malformed ones are left out."""
    return [key for each in described[:MOST_KEYS] if (key := _usable_key(each)) is not None]


def _usable_key(described: Mapping[str, Any]) -> Key | None:
    type_ = _TYPES.get(str(described.get("kty")))
    if type_ is None or described.get("use", "sig") != "sig":
        return None
    public = {
        name: value for name, value in described.items() if name in {"kty", "n", "e", "crv", "x", "y", "kid", "alg"}
    }
    try:
        key = type_.import_key(public)
        bits = key.public_key.key_size
    except (JoseError, ValueError, TypeError, KeyError):
        return None
    return None if isinstance(key, RSAKey) and bits < _SHORTEST_RSA else key


class Keys:
    """The keys of one provider. `fetch` gets them; `clock` gives seconds that only rise."""

    def __init__(self, fetch: Callable[[], Awaitable[Sequence[Key]]], clock: Callable[[], float]) -> None:
        self._fetch, self._clock = fetch, clock
        self._keys: Sequence[Key] = ()
        self._fetched_at = self._next = float("-inf")
        self._fetching: asyncio.Task[None] | None = None
        self._is_failing = False

    async def find(self, kid: str) -> Sequence[Key]:
        """Return the keys that may have signed a token: that of an id, or all for a token without one."""
        found = self._of(kid)
        if not found:
            if fetching := self._begin():
                await asyncio.shield(fetching)
            return self._of(kid)
        if self._clock() - self._fetched_at > REFRESH_SECONDS:
            self._begin()
        return found

    def _of(self, kid: str) -> list[Key]:
        return [key for key in self._keys if not kid or key.kid == kid]

    def _begin(self) -> "asyncio.Task[None] | None":
        """Begin a fetch, unless one is under way, which is then returned, or the last one is too short ago."""
        if self._fetching is None and self._clock() >= self._next:
            self._next = self._clock() + PAUSE_SECONDS
            self._fetching = asyncio.create_task(self._refresh())
        return self._fetching

    async def _refresh(self) -> None:
        try:
            self._keys = await self._fetch()
            self._fetched_at, self._is_failing = self._clock(), False
        except Exception as error:  # whatever the provider does, requests go on
            if not self._is_failing:
                logger.warning(
                    "cannot fetch the identity provider's keys; retrying when a token needs them", error=error
                )
            self._is_failing = True
        finally:
            self._next, self._fetching = self._clock() + PAUSE_SECONDS, None

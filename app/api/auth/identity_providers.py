"""Identity providers: all whose ID tokens the API accepts, each with a `Verifier`. The authenticator asks them about tokens.

`app.api.serve` makes them of the settings: of the flags for one provider, or of a file, which is read again when it changes. A
provider that stays the same keeps its keys and the tokens that it has verified.
"""

import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path

from app.api.auth.authentication_configuration import JWTAuthenticator, read_configuration
from app.api.auth.authenticator import User
from app.api.auth.oidc import Verifier, issuer_of
from app.api.auth.oidc_keys import Keys, Provider
from app.structured_logging import Logger

ALGORITHMS = tuple(f"{family}{bits}" for family in ("RS", "ES", "PS") for bits in (256, 384, 512))
LOOK = timedelta(seconds=1)

logger = Logger(__name__)


class IdentityProviders:
    """Those of now, by their issuers. `algorithms`: which signatures count."""

    def __init__(self, now: Callable[[], datetime], algorithms: Sequence[str] = ALGORITHMS) -> None:
        self._now, self._algorithms = now, tuple(algorithms)
        self._verifiers: dict[str, Verifier] = {}

    def use(self, providers: Sequence[JWTAuthenticator]) -> None:
        """Trust these from now on, and no others. ValueError, OSError: nothing has changed."""
        known = {issuer: each for issuer, each in self._verifiers.items() if each.provider in providers}
        made = {}
        for number, each in enumerate(providers):
            try:
                made[each.issuer.url] = known.get(each.issuer.url) or self._make(each)
            except ValueError as error:
                raise ValueError(f"jwt[{number}].{error}") from None
        self._verifiers = made

    def _make(self, provider: JWTAuthenticator) -> Verifier:
        keys = Keys(Provider(provider.issuer).fetch_keys, time.monotonic)
        return Verifier(provider, self._algorithms, keys.find, self._now)

    def is_issuer_of(self, token: str) -> bool:
        """Return whether a token says that one of them has issued it."""
        return issuer_of(token) in self._verifiers

    async def lookup(self, token: str) -> User | None:
        """Return the user of such a token; None, with a line in the log, if it is not accepted."""
        verifier = self._verifiers.get(issuer_of(token))
        return await verifier.lookup(token) if verifier else None


class AuthenticationReload:
    """Takes in the file when it has changed. One that cannot be read or used leaves those of before."""

    name = "reload of the authentication configuration"
    interval = LOOK

    def __init__(self, path: Path, providers: IdentityProviders) -> None:
        self._path, self._providers = path, providers
        self._text = b""

    def load(self) -> None:
        """Read the file. ValueError, with one line that says what to change."""
        try:
            self._text = self._path.read_bytes()
        except OSError as error:
            self._text = b""
            raise ValueError(f"cannot be read: {error.strerror}") from None
        try:
            self._providers.use(read_configuration(self._text))
        except OSError as error:  # of a certificate authority
            raise ValueError(f"issuer.certificateAuthority: {error.strerror or error}") from None

    async def run_once(self, _: datetime) -> dict[str, int]:
        before = self._text
        try:
            if self._path.exists() and self._path.read_bytes() == before:
                return {}
            self.load()
        except (OSError, ValueError) as error:
            if self._text != before:
                logger.warning("cannot use the authentication configuration; trusting who was trusted", error=error)
            return {}
        logger.info("using a new authentication configuration", path=str(self._path))
        return {}

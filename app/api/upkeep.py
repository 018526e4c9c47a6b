"""Upkeep of an API process: tokens in files, the kubeconfig, its certificate.

`serve` prepares it before the first request, and runs it until the end. Files tell nobody that they changed, so they are
looked at every second; the certificate's end is looked at every few hours.
"""

import asyncio
import ssl
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from app.api.auth import certificates
from app.api.auth.token_files import ADMIN, AGENT, AGENT_OVERLAP, keep_files, write_kubeconfig
from app.api.streams.agent_calls import Origin
from app.registry.objects import Registry
from app.settings import Settings
from app.store import Unavailable
from app.structured_logging import Logger

LOOK_SECONDS = 1.0
RENEW_SECONDS = 6 * 3600.0

logger = Logger(__name__)
Stamp = tuple[int, int]


class Upkeep:
    """Tokens, kubeconfig and certificates of one data folder."""

    def __init__(self, registry: Registry, settings: Settings, url: str) -> None:
        self._registry, self._settings, self._url = registry, settings, url
        self._tls = settings.data_dir / "tls"
        self._paths = certificates.ensure(self._tls, settings.certified_hosts)
        self._tokens = self._stamps(settings.data_dir / ADMIN, settings.data_dir / AGENT)
        self._certificates = self._stamps(self._paths.ca, self._paths.cert)
        self.has_kubeconfig = False

    @property
    def certificates(self) -> certificates.Certificates:
        return self._paths

    def authority(self) -> str:
        """The certificates to trust, PEM; none without TLS of our own."""
        return self._paths.ca.read_text() if self._settings.tls else ""

    def origin(self) -> Origin:
        """The URL at which other processes reach this one, and the certificate that it shows."""
        return Origin(self._url, certificates.fingerprint(self._paths.cert) if self._settings.tls else "")

    async def prepare(self) -> None:
        """Keep tokens and kubeconfig once, before the first request."""
        await keep_files(self._registry, self._settings)
        self.has_kubeconfig = write_kubeconfig(self._settings, self._paths.ca)

    async def run(self, context: ssl.SSLContext | None, changed: Callable[[Origin], None]) -> None:
        """Reload what changes, until cancelled; `changed` gets the origin with a new certificate. What fails is tried again."""
        renewed_at = time.monotonic()
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self._reload_tokens()
                if time.monotonic() - renewed_at > RENEW_SECONDS:
                    renewed_at = time.monotonic()
                    self.renew(datetime.now(UTC))
                self._reload_certificates(context, changed)
            except (OSError, Unavailable, ValueError) as error:
                logger.warning(
                    "cannot read changed tokens or certificates; retrying",
                    path=str(self._settings.data_dir),
                    error=error,
                )

    def renew(self, now: datetime) -> None:
        """Make another server certificate if the one in the folder is due."""
        certificates.renew(self._tls, self._settings.certified_hosts, now=now)

    async def _reload_tokens(self) -> None:
        found = self._stamps(self._settings.data_dir / ADMIN, self._settings.data_dir / AGENT)
        if found != self._tokens:
            await keep_files(self._registry, self._settings, AGENT_OVERLAP)
            self.has_kubeconfig = write_kubeconfig(self._settings, self._paths.ca)
            self._tokens = found
            logger.info("accepting rotated tokens", path=str(self._settings.data_dir))

    def _reload_certificates(self, context: ssl.SSLContext | None, changed: Callable[[Origin], None]) -> None:
        if self._stamps(self._paths.ca, self._paths.cert) == self._certificates:
            return
        self.renew(datetime.now(UTC))  # the authority may be another one
        found = self._stamps(self._paths.ca, self._paths.cert)
        if context is not None:
            context.load_cert_chain(self._paths.cert, self._paths.key)
        changed(self.origin())
        write_kubeconfig(self._settings, self._paths.ca)
        self._certificates = found
        logger.info("serving a new certificate")

    @staticmethod
    def _stamps(*paths: Path) -> list[Stamp | None]:
        return [_stamp(path) for path in paths]


def _stamp(path: Path) -> Stamp | None:
    """Differs when the file is another one, or was written to; None if it is not there."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns

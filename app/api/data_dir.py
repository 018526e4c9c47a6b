"""Data folder of an API process: tokens in files, the kubeconfig, its certificate.

`serve` prepares it before the first request, and runs its periodic tasks until the end. Files tell nobody that they changed,
so they are looked at every second; the certificate's end is looked at every few hours. Token files are looked at before each
look-up of a token, too: the agent of `jobplane up` uses a new token at once.
"""

import asyncio
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from app.api.auth import certificates
from app.api.auth.token_files import ADMIN, AGENT, AGENT_OVERLAP, keep_files, write_kubeconfig
from app.api.streams.agent_calls import Origin
from app.registry.periodic_task import PeriodicTask, run_periodically
from app.registry.registry import Registry
from app.settings import Settings
from app.structured_logging import Logger

LOOK = timedelta(seconds=1)

logger = Logger(__name__)
Stamp = tuple[int, int]


class DataDir:
    """What the data folder holds. `url`: where other processes reach this one; `more`: tasks beside those of the folder."""

    def __init__(self, registry: Registry, settings: Settings, url: str, more: Sequence[PeriodicTask] = ()) -> None:
        self._settings, self._url, self._more = settings, url, more
        self.certificates = certificates.ensure(settings.data_dir / "tls", settings.certified_hosts)
        self._served = _stamps(self.certificates.ca, self.certificates.cert)
        self._tokens = TokenReload(registry, settings, self.certificates.ca)
        self._expiry = registry.metrics.gauge(
            "jobplane_certificate_expiration_timestamp_seconds",
            "When a certificate of this API process ends, in seconds since 1970.",
            ("certificate",),
        )
        self._measure_certificates()

    @property
    def has_kubeconfig(self) -> bool:
        return self._tokens.has_kubeconfig

    def authority(self) -> str:
        """The certificates to trust, PEM; none without TLS of our own."""
        return self.certificates.ca.read_text() if self._settings.tls else ""

    def origin(self) -> Origin:
        """The URL at which other processes reach this one, and the certificate that it shows."""
        return Origin(self._url, certificates.fingerprint(self.certificates.cert) if self._settings.tls else "")

    def _measure_certificates(self) -> None:
        for name, file in (("authority", self.certificates.ca), ("server", self.certificates.cert)):
            self._expiry.set(certificates.ends_at(file).timestamp(), name)

    async def prepare(self) -> None:
        """Keep tokens and kubeconfig once, before the first request."""
        await self._tokens.keep()

    async def take_in_tokens(self) -> None:
        """Accept tokens that have just been written to the files. The next look tries again what cannot be read or written."""
        with suppress(OSError):
            await self._tokens.take_in()

    async def run(self, context: ssl.SSLContext | None, changed: Callable[[Origin], None]) -> None:
        """Run until cancelled. `changed` gets the origin of this process whenever its certificate is another."""
        renewal = CertificateRenewal(self._settings)

        def use() -> None:
            self._measure_certificates()
            if context is not None:
                context.load_cert_chain(self.certificates.cert, self.certificates.key)
                context.load_verify_locations(
                    self.certificates.ca
                )  # one that is gone is refused by `client_certificates`
            changed(self.origin())

        reload = CertificateReload(renewal, self.certificates, self._served, use)
        tasks: list[PeriodicTask] = [self._tokens, renewal, reload, *self._more]
        async with asyncio.TaskGroup() as group:
            for task in tasks:
                group.create_task(run_periodically(task, lambda: datetime.now(UTC)))


class TokenReload:
    """Takes in tokens that were written to the files of the data folder."""

    name = "reload of tokens"
    interval = LOOK

    def __init__(self, registry: Registry, settings: Settings, authority: Path) -> None:
        self._registry, self._settings, self._authority = registry, settings, authority
        self._paths = (settings.data_dir / ADMIN, settings.data_dir / AGENT)
        self._stamps = _stamps(*self._paths)
        self._lock = asyncio.Lock()
        self.has_kubeconfig = False

    async def keep(self, overlap: timedelta | None = None) -> None:
        """Keep the tokens in the files and write the kubeconfig; tokens of before are good for `overlap` yet."""
        await keep_files(self._registry, self._settings, overlap)
        self.has_kubeconfig = write_kubeconfig(self._settings, self._authority)

    async def run_once(self, _: datetime) -> dict[str, int]:
        await self.take_in()
        return {}

    async def take_in(self) -> None:
        """Accept the tokens in the files if any is another one; return when they are accepted, whoever has done it."""
        async with self._lock:
            found = _stamps(*self._paths)
            if found != self._stamps:
                await self.keep(AGENT_OVERLAP)
                self._stamps = found
                logger.info("accepting rotated tokens", path=str(self._settings.data_dir))


class CertificateRenewal:
    """Makes another server certificate if the one in the data folder is due."""

    name = "renewal of the certificate"
    interval = timedelta(hours=6)

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    async def run_once(self, now: datetime) -> dict[str, int]:
        certificates.renew(self.settings.data_dir / "tls", self.settings.certified_hosts, now=now)
        return {}


class CertificateReload:
    """Has the certificate served (`use`) that is in the data folder, whoever has written it. `served`: stamps of files."""

    name = "reload of the certificate"
    interval = LOOK

    def __init__(
        self,
        renewal: CertificateRenewal,
        paths: certificates.Certificates,
        served: list[Stamp | None],
        use: Callable[[], None],
    ) -> None:
        self._renewal, self._paths, self._served, self._use = renewal, paths, served, use

    async def run_once(self, now: datetime) -> dict[str, int]:
        if _stamps(self._paths.ca, self._paths.cert) == self._served:
            return {}
        await self._renewal.run_once(now)  # the authority may be another one
        found = _stamps(self._paths.ca, self._paths.cert)
        self._use()
        write_kubeconfig(self._renewal.settings, self._paths.ca)
        self._served = found
        logger.info("serving a new certificate")
        return {}


def _stamps(*paths: Path) -> list[Stamp | None]:
    return [_stamp(path) for path in paths]


def _stamp(path: Path) -> Stamp | None:
    """Differs when the file is another one, or was written to; None if it is not there."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns

"""Runs the API of one process: what its data folder holds is prepared and looked after, uvicorn serves until a signal."""

import asyncio
import gc
import signal
import socket
import ssl
import sys
import time
from collections.abc import Callable, Collection
from datetime import datetime
from types import FrameType
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

import uvicorn
from starlette.datastructures import State

from app.api.app import create_app
from app.api.audit.audit_log import OpenAudit
from app.api.audit.auditor import Audit
from app.api.audit.event_buffer import EventBuffer
from app.api.auth.authenticator import MASTERS, IdentityProvider, User
from app.api.auth.signin_codes import CODE_LIFE, create_code, signin_link
from app.api.data_dir import DataDir
from app.api.http import tls
from app.api.http.connection import Connection
from app.api.http.goaway import Goaway
from app.api.http.listener import Listener
from app.api.routers import ui
from app.api.streams.agent_calls import Calls
from app.registry import offload
from app.registry.verbs.objects import Registry
from app.settings import UNSPECIFIED, Settings, items
from app.structured_logging import Logger

if TYPE_CHECKING:
    from app.api.auth.authentication_configuration import JWTAuthenticator
    from app.api.auth.identity_providers import AuthenticationReload

logger = Logger(__name__)


def _url(registry: Registry, settings: Settings) -> str:
    """Return where others reach this process, if it must be found out: at the address from which it reaches the database."""
    if settings.advertise_url or settings.host not in UNSPECIFIED:
        return settings.advertise_url or settings.url()
    return settings.model_copy(update={"host": address_towards(registry.database_url)}).url()


def address_towards(dsn: str) -> str:
    """This machine's address as the database (the first, if there are several) would see it; nothing is sent to find out."""
    first = urlsplit(f"//{urlsplit(dsn).netloc.rpartition('@')[2].partition(',')[0]}")
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((first.hostname or "127.0.0.1", first.port or 5432))
            return str(probe.getsockname()[0])
    except OSError:
        return "127.0.0.1"


class Trusted(NamedTuple):
    """Who issues ID tokens, and what follows the file that says so, if it is a file."""

    providers: IdentityProvider | None = None
    reload: "AuthenticationReload | None" = None


def trusted_providers(settings: Settings, now: Callable[[], datetime]) -> Trusted:
    """Return who issues ID tokens as the settings say. Asks nobody yet. ValueError with one line that says what to change."""
    if not settings.oidc_issuer_url and settings.authentication_config is None:
        return Trusted()
    from app.api.auth.identity_providers import AuthenticationReload, IdentityProviders

    if settings.authentication_config is not None:
        providers = IdentityProviders(now)
        reload = AuthenticationReload(settings.authentication_config, providers)
        try:
            reload.load()
        except ValueError as error:
            raise ValueError(f"--authentication-config: {settings.authentication_config}: {error}") from None
        return Trusted(providers, reload)
    providers = IdentityProviders(now, items(settings.oidc_signing_algs))
    try:
        authority = settings.oidc_ca_file.read_text() if settings.oidc_ca_file else ""
        providers.use([_provider(settings, authority)])
    except OSError as error:
        why = "holds no certificate" if isinstance(error, ssl.SSLError) else error.strerror
        raise ValueError(f"--oidc-ca-file: {settings.oidc_ca_file}: {why}") from None
    return Trusted(providers)


def _provider(settings: Settings, authority: str) -> "JWTAuthenticator":
    from app.api.auth.authentication_configuration import from_flags

    return from_flags(
        issuer_url=settings.oidc_issuer_url,
        client_id=settings.oidc_client_id,
        username_claim=settings.oidc_username_claim,
        username_prefix=settings.oidc_username_prefix,
        groups_claim=settings.oidc_groups_claim,
        groups_prefix=settings.oidc_groups_prefix,
        required_claims={
            name: value for name, _, value in (x.partition("=") for x in items(settings.oidc_required_claim))
        },
        certificate_authority=authority,
    )


async def serve(
    registry: Registry,
    settings: Settings,
    sockets: list[socket.socket],
    trusted: Trusted,
    audit_log: OpenAudit | None,
) -> None:
    """Serve until SIGINT or SIGTERM, then return. Open watches end cleanly: their clients come back by themselves.

    sockets:   bound to where it is to listen (`app.api.http.listening_sockets`); they are closed at the end.
    trusted:   who issues ID tokens, if the API accepts any.
    audit_log: what it audits, and where to; None: nothing.
    """
    sys.setswitchinterval(offload.SWITCH_SECONDS)
    data_dir = DataDir(registry, settings, _url(registry, settings), [trusted.reload] if trusted.reload else [])
    made = data_dir.certificates
    audit = (
        Audit(audit_log.policy, EventBuffer(audit_log.log, registry.metrics, settings.audit_log_mode))
        if audit_log
        else None
    )
    app = create_app(
        registry,
        data_dir.origin(),
        data_dir.authority,
        trusted.providers,
        audit,
        settings.require_node_certificates,
        data_dir.take_in_tokens,
    )
    config = uvicorn.Config(
        app,
        ssl_certfile=str(made.cert) if settings.tls else None,
        ssl_keyfile=str(made.key) if settings.tls else None,
        ssl_ca_certs=str(made.ca) if settings.tls else None,
        ssl_ciphers=tls.CIPHERS,
        ssl_cert_reqs=ssl.CERT_OPTIONAL if settings.tls else ssl.CERT_NONE,  # clients may show a certificate
        http=Connection,
        ws="none",  # `Connection` lets them through to the application itself
        lifespan="off",  # entered below: uvicorn would log what it raises, but the caller must get it, to try again
        access_log=False,
        log_config=None,  # its lines go where ours go
        log_level="warning",
        server_header=False,
        proxy_headers=False,  # users are known by tokens, never by addresses
        timeout_graceful_shutdown=1,
        timeout_keep_alive=75,  # longer than clients keep idle connections, so that it is they who close them
    )
    async with app.router.lifespan_context(app):
        await data_dir.prepare()
        gc.freeze()  # what lives as long as the process is not looked through for cycles again and again
        await _Server(config, settings, app.state, data_dir).serve(sockets)


def _announce(settings: Settings, has_kubeconfig: bool) -> None:
    """Log the address that a server listens on, and a command for kubectl."""
    scheme, host = "https" if settings.tls else "http", settings.host or "0.0.0.0"  # noqa: S104 - logged, not bound
    logger.info("API is serving", address=f"{scheme}://{f'[{host}]' if ':' in host else host}:{settings.port}")
    if has_kubeconfig:
        logger.info("try kubectl", command=f"kubectl --kubeconfig {settings.data_dir / 'kubeconfig'} get nodes")
        return
    trust = f" --ca-file {settings.data_dir / 'tls' / 'ca.crt'}" if settings.tls else ""
    command = f"jobplane kubeconfig --server {settings.url()}{trust} --database-url ... > kubeconfig"
    logger.info("make a kubeconfig for kubectl", command=command)


async def _offer_page(registry: Registry, settings: Settings) -> None:
    """Print a link that signs in to the page, to a terminal only: a log would keep it. Elsewhere, log how to get one."""
    data = settings.data_dir
    if not ui.read_files(ui.FOLDER):
        logger.warning("the page at /ui is not built", command="make page")
    elif sys.stdout.isatty():
        link = signin_link(settings.url(), await create_code(registry, User(name="admin", groups=(MASTERS,))))
        life = int(CODE_LIFE.total_seconds()) // 60
        sys.stdout.write(
            f"Open {link}\n(works once, within {life} minutes; for another: jobplane page --data-dir {data})\n"
        )
        sys.stdout.flush()
    else:
        logger.info("open the page", command=f"jobplane page --data-dir {data}")


class _Server(uvicorn.Server):
    """Logs when it is ready. Returns after a signal, where uvicorn would raise it again."""

    def __init__(self, config: uvicorn.Config, settings: Settings, state: State, data_dir: DataDir) -> None:
        super().__init__(config)
        self._settings, self._data_dir = settings, data_dir
        self._goaway = Goaway(settings.goaway_chance)
        self._stopping: asyncio.Event = state.stopping
        self._registry: Registry = state.registry
        self._streams: Collection[asyncio.Task[None]] = state.streams
        self._calls: Calls = state.calls
        self._data_dir_task: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        if self.config.ssl is not None:
            tls.restrict(self.config.ssl)
        await super().startup([])  # it would accept and shake hands with all clients at once
        if self.started:
            context = self.config.ssl
            self.servers = [Listener(sockets or (), self._make_connection, context)]  # type: ignore[list-item] # as far as it is called
            self._data_dir_task = asyncio.create_task(self._data_dir.run(context, self._calls.set_origin))
            _announce(self._settings, self._data_dir.has_kubeconfig)
            if self._data_dir.has_kubeconfig:
                await _offer_page(self._registry, self._settings)

    def _make_connection(self) -> Connection:
        made = Connection(config=self.config, server_state=self.server_state, app_state=self.lifespan.state)
        made.goaway = self._goaway
        return made

    def handle_exit(self, sig: int, _: FrameType | None) -> None:
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._drain()
        if self._data_dir_task:
            self._data_dir_task.cancel()
        for stream in list(self._streams):
            stream.cancel()
        await super().shutdown(sockets)

    async def _drain(self) -> None:
        """Serve on for the delay of the shutdown, not ready: balancers send nobody here any more, and clients leave."""
        self._goaway.is_stopping = True
        self._stopping.set()
        ends = time.monotonic() + self._settings.shutdown_delay.total_seconds()
        while time.monotonic() < ends and not self.force_exit:  # noqa: ASYNC110 - as uvicorn waits for signals
            await asyncio.sleep(0.1)

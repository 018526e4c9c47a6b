"""Runs the API of one process: TLS, tokens and kubeconfig in the data folder, then uvicorn until a signal."""

import asyncio
import logging
import signal
import socket
from collections.abc import Collection
from pathlib import Path
from types import FrameType
from urllib.parse import urlsplit

import uvicorn

from app.api import certificates
from app.api.app import create_app
from app.api.auth import MASTERS, NODES, User
from app.api.calls import Origin
from app.api.connection import Connection
from app.api.tokens import keep
from app.registry.bootstrap import bootstrap
from app.registry.objects import Registry
from app.settings import Settings

log = logging.getLogger(__name__)


async def prepare(registry: Registry, settings: Settings) -> certificates.Certificates:
    """What must be there before the first request."""
    made = certificates.ensure(settings.data_dir / "tls", sorted({"localhost", "127.0.0.1", "::1", settings.host}))
    await bootstrap(registry)
    await _keep_file(registry, settings.data_dir / "admin.token", User(name="admin", groups=(MASTERS,)))
    await _keep_file(
        registry, settings.data_dir / "agent.token", User(name="system:node:local", groups=(NODES,), nodes=("*",))
    )
    return made


async def _keep_file(registry: Registry, path: Path, user: User) -> None:
    if path.exists():
        await keep(registry, path.read_text().strip(), user)


def write_kubeconfig(settings: Settings, made: certificates.Certificates) -> None:
    """For kubectl on this machine; only its owner may read it."""
    token = (settings.data_dir / "admin.token").read_text().strip()
    text = certificates.kubeconfig(settings.url(), made.ca.read_text(), token)
    certificates.write_private(settings.data_dir / "kubeconfig", text.encode())


def _origin(registry: Registry, settings: Settings, made: certificates.Certificates) -> Origin:
    """Where others reach this process, if it must be found out: at the address from which it reaches the database."""
    url = settings.advertise_url or settings.url()
    if not settings.advertise_url and settings.host in {"0.0.0.0", "::", ""}:  # noqa: S104 - compared, not bound
        url = settings.model_copy(update={"host": _address_towards(registry.store.dsn)}).url()
    return Origin(url, certificates.fingerprint(made.cert) if settings.tls else "")


def _address_towards(dsn: str) -> str:
    """This machine's address as the database would see it; nothing is sent to find out."""
    at = urlsplit(dsn)
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((at.hostname or "127.0.0.1", at.port or 5432))
            return str(probe.getsockname()[0])
    except OSError:
        return "127.0.0.1"


async def serve(registry: Registry, settings: Settings) -> None:
    """Serve until SIGINT or SIGTERM, then return. Open watches end cleanly: their clients come back by themselves."""
    made = await prepare(registry, settings)
    if (settings.data_dir / "admin.token").exists():
        write_kubeconfig(settings, made)
    authority = made.ca.read_text() if settings.tls else ""
    app = create_app(registry, _origin(registry, settings, made), authority)
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        ssl_certfile=str(made.cert) if settings.tls else None,
        ssl_keyfile=str(made.key) if settings.tls else None,
        http=Connection,
        ws="none",  # `Connection` lets them through to the application itself
        lifespan="off",
        access_log=False,
        log_level="warning",
        server_header=False,
        proxy_headers=False,  # who asks is told by tokens, never by addresses
        timeout_graceful_shutdown=1,
        timeout_keep_alive=75,  # longer than clients keep idle connections, so that it is they who close them
        backlog=4096,
    )
    await _Server(config, settings, app.state.streams).serve()


class _Server(uvicorn.Server):
    """Says when it is ready, and how to use it. Returns after a signal, where uvicorn would die of it in the end."""

    def __init__(self, config: uvicorn.Config, settings: Settings, streams: Collection[asyncio.Task[None]]) -> None:
        super().__init__(config)
        self._settings = settings
        self._streams = streams

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            log.info("serving on %s", self._settings.url())
            log.info("try: kubectl --kubeconfig %s get nodes", self._settings.data_dir / "kubeconfig")

    def handle_exit(self, sig: int, _: FrameType | None) -> None:
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for stream in list(self._streams):
            stream.cancel()
        await super().shutdown(sockets)

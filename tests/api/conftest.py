"""The whole HTTP application on a real port, in the test's own loop, on the test's own database."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest
import uvicorn

from app.api.app import create_app
from app.api.auth import MASTERS, User
from app.api.connection import Connection
from app.api.tokens import issue
from app.registry.objects import Registry
from tests.conftest import NO_TLS


@asynccontextmanager
async def serving(registry: Registry) -> AsyncIterator[str]:
    """The URL of an API process that ends with the context."""
    app = create_app(registry)
    config = uvicorn.Config(
        app, host="127.0.0.1", port=0, http=Connection, ws="none", lifespan="off", log_level="warning"
    )
    server = uvicorn.Server(config)
    listening = config.bind_socket()
    task = asyncio.create_task(server._serve(sockets=[listening]))  # without its signal handlers
    while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
        await asyncio.sleep(0)
    try:
        host, port = listening.getsockname()
        yield f"http://{host}:{port}"
    finally:
        for stream in list(app.state.streams):
            stream.cancel()
        server.should_exit = True
        await task
        listening.close()


@pytest.fixture
async def url(registry: Registry) -> AsyncIterator[str]:
    async with serving(registry) as url:
        yield url


@pytest.fixture
async def admin(registry: Registry, url: str) -> AsyncIterator[httpx.AsyncClient]:
    """A client that may do everything."""
    token = await issue(registry, User(name="admin", groups=(MASTERS,)))
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=30, verify=NO_TLS) as client:
        yield client

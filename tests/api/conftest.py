"""The whole HTTP application on a real port, in the test's own loop, on the test's own database."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest
import pytest_asyncio

from app.api.app import create_app
from app.api.auth.authenticator import MASTERS, User
from app.api.auth.tokens import issue
from app.registry.verbs.objects import Registry
from tests.api.servers import listening
from tests.conftest import NO_TLS, Lasting


@asynccontextmanager
async def serving(registry: Registry) -> AsyncIterator[str]:
    """The URL of an API process that ends with the context."""
    async with listening(create_app(registry)) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.fixture
async def url(registry: Registry) -> AsyncIterator[str]:
    async with serving(registry) as url:
        yield url


@asynccontextmanager
async def administering(registry: Registry, url: str) -> AsyncIterator[httpx.AsyncClient]:
    """A client that may do everything."""
    token = await issue(registry, User(name="admin", groups=(MASTERS,)))
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=30, verify=NO_TLS) as client:
        yield client


@pytest.fixture
async def admin(registry: Registry, url: str) -> AsyncIterator[httpx.AsyncClient]:
    async with administering(registry, url) as client:
        yield client


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lasting_url(lasting: Lasting) -> AsyncIterator[str]:
    """For a module whose tests run on the module's loop."""
    async with serving(lasting.registry) as url:
        yield url


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lasting_admin(lasting: Lasting, lasting_url: str) -> AsyncIterator[httpx.AsyncClient]:
    """What such a module takes for its `admin`, with a `restored` registry."""
    async with administering(lasting.registry, lasting_url) as client:
        yield client

"""The whole HTTP application on a real port, in the test's own loop, on the test's own database."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest

from app.api.app import create_app
from app.api.auth import MASTERS, User
from app.api.tokens import issue
from app.registry.objects import Registry
from tests.api.streams import listening
from tests.conftest import NO_TLS


@asynccontextmanager
async def serving(registry: Registry) -> AsyncIterator[str]:
    """The URL of an API process that ends with the context."""
    async with listening(create_app(registry)) as port:
        yield f"http://127.0.0.1:{port}"


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

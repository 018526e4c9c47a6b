"""The advice on connection errors, from real sockets and certificates."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from starlette.applications import Starlette

from app.api.auth import certificates
from app.client.api import Api, UnreachableError
from app.client.connection_errors import remedy, remedy_now
from tests.api.servers import listening


def app() -> Starlette:
    made = Starlette()
    made.state.streams = set()
    return made


@asynccontextmanager
async def serving(folder: Path, since: timedelta = timedelta()) -> AsyncIterator[tuple[int, Path]]:
    """The port of an API whose certificate was made that long ago, and its authority."""
    made = certificates.ensure(folder, ["127.0.0.1"], now=datetime.now(UTC) - since)
    async with listening(app(), ssl_certfile=str(made.cert), ssl_keyfile=str(made.key)) as port:
        yield port, made.ca


async def failure(server: str, ca: Path | None = None, tls_name: str = "") -> UnreachableError:
    api = Api(server, ca_file=ca, tls_name=tls_name)
    try:
        with pytest.raises(UnreachableError) as failed:
            await api.request("GET", "/livez")
    finally:
        await api.close()
    return failed.value


@pytest.mark.parametrize(
    ("since", "reason", "what_to_do"),
    [
        pytest.param(
            timedelta(days=-400), "not yet valid", "the clock of this machine is probably wrong", id="clock behind"
        ),
        pytest.param(
            timedelta(days=400), "expired", "set the clock of this machine if it is wrong; otherwise", id="expired"
        ),
    ],
)
async def test_a_certificate_out_of_its_time_points_to_the_clock(
    tmp_path: Path, since: timedelta, reason: str, what_to_do: str
) -> None:
    async with serving(tmp_path, since) as (port, ca):
        server = f"https://127.0.0.1:{port}"
        advice = remedy(server, await failure(server, ca))
    assert advice.startswith(f"{server}: certificate ")
    assert reason in advice
    assert what_to_do in advice


async def test_a_certificate_of_another_name_points_to_the_name(tmp_path: Path) -> None:
    async with serving(tmp_path) as (port, ca):
        server = f"https://127.0.0.1:{port}"
        for name in ("elsewhere.example", "10.9.9.9"):
            assert "--tls-name that the certificate is for" in remedy(server, await failure(server, ca, name))


async def test_an_unknown_authority_points_to_the_hash(tmp_path: Path) -> None:
    async with serving(tmp_path) as (port, _):
        server = f"https://127.0.0.1:{port}"
        assert "pass the --ca-hash" in remedy(server, await failure(server))


async def test_http_to_tls_and_tls_to_http_point_to_the_scheme(tmp_path: Path) -> None:
    async with serving(tmp_path) as (port, _):
        server = f"http://127.0.0.1:{port}"
        assert await remedy_now(server, await failure(server)) == f"{server} speaks TLS: pass a --server with https://"
    async with listening(app()) as port:
        server = f"https://127.0.0.1:{port}"
        assert await remedy_now(server, await failure(server)) == (
            f"{server} does not speak TLS: check host and port; for an API with --no-tls, pass http://"
        )


async def test_what_may_pass_has_no_remedy_and_names_address_and_error() -> None:
    error = await failure("https://127.0.0.1:9")
    assert await remedy_now("https://127.0.0.1:9", error) == ""
    assert str(error).startswith("https://127.0.0.1:9: [Errno 111]")

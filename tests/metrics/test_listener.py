"""The listener of controllers and agents: scrapes, probes, and clients that behave badly."""

import asyncio
import socket

import httpx
import pytest

from app.metrics import listener
from app.metrics.address import parse_address
from app.metrics.health_checks import PING, Check
from app.metrics.listener import ListenError, listening
from app.metrics.registry import MetricsRegistry
from tests.conftest import NO_TLS
from tests.metrics.promtool import check_metrics

ANY = "127.0.0.1:0"


async def get(port: int, path: str, method: str = "GET") -> httpx.Response:
    async with httpx.AsyncClient(verify=NO_TLS, timeout=30) as client:
        return await client.request(method, f"http://127.0.0.1:{port}{path}")


async def exchange(port: int, sent: bytes) -> bytes:
    """All that comes back, until the listener closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(sent)
        return await asyncio.wait_for(reader.read(), 60)
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


async def test_numbers_are_scraped() -> None:
    metrics = MetricsRegistry()
    metrics.counter("a_total", "A.").inc()
    async with listening(ANY, metrics) as port:
        answer, head = await get(port, "/metrics"), await get(port, "/metrics", "HEAD")

    assert (answer.status_code, head.status_code, head.text) == (200, 200, "")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert "a_total 1\n" in answer.text
    check_metrics(answer.text)


async def test_probes_are_answered_as_the_api_does() -> None:
    faults = {"database": "away"}

    async def database() -> str:
        return faults.get("database", "")

    async with listening(ANY, MetricsRegistry(), (PING, Check("database", database))) as port:
        live, failed = await get(port, "/livez"), await get(port, "/readyz")
        excluded = await get(port, "/readyz?verbose&exclude=database")
        faults.clear()
        ready = await get(port, "/readyz")

    assert (live.status_code, live.text) == (200, "ok")
    assert (failed.status_code, failed.text) == (503, "[+]ping ok\n[-]database failed: away\nreadyz check failed\n")
    assert (excluded.status_code, excluded.text) == (200, "[+]ping ok\n[+]database excluded: ok\nreadyz check passed\n")
    assert (ready.status_code, ready.text) == (200, "ok")


@pytest.mark.parametrize(("method", "path", "code"), [("GET", "/nix", 404), ("POST", "/metrics", 405)])
async def test_nothing_else_is_served(method: str, path: str, code: int) -> None:
    async with listening(ANY, MetricsRegistry()) as port:
        assert (await get(port, path, method)).status_code == code


@pytest.mark.parametrize("sent", [b"GET /%s HTTP/1.1\r\n" % (b"x" * 100_000), b"GET //[ HTTP/1.1\r\n\r\n"])
async def test_what_is_no_request_ends_the_connection(sent: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async with listening(ANY, MetricsRegistry()) as port:
        assert await exchange(port, sent) == b""
        assert (await get(port, "/livez")).status_code == 200
    assert not caplog.records


async def test_a_client_that_says_nothing_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "SECONDS", 0.05)
    async with listening(ANY, MetricsRegistry()) as port:
        assert await exchange(port, b"GET /metrics") == b""


async def test_there_are_only_so_many_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "MOST_CONNECTIONS", 1)
    async with listening(ANY, MetricsRegistry()) as port:
        reader, held = await asyncio.open_connection("127.0.0.1", port)
        assert await exchange(port, b"GET /livez HTTP/1.1\r\n\r\n") == b""
        held.write(b"GET /livez HTTP/1.1\r\n\r\n")
        assert (await asyncio.wait_for(reader.read(), 60)).endswith(b"ok")
        held.close()


async def test_it_stops_with_a_client_connected() -> None:
    async with listening(ANY, MetricsRegistry()) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        await get(port, "/livez")  # by then the other connection is accepted
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)
    writer.close()


async def test_an_address_that_is_taken_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ListenError, match=f"cannot listen on {address}: "):
            async with listening(address, MetricsRegistry()):
                pass


@pytest.mark.parametrize(("text", "found"), [("[::1]:9464", ("::1", 9464)), ("localhost:0", ("localhost", 0))])
def test_an_address_is_host_and_port(text: str, found: tuple[str, int]) -> None:
    assert parse_address(text) == found


@pytest.mark.parametrize("text", ["9464", ":9464", "host:", "host:x", "host:70000"])
def test_other_addresses_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not an address such as"):
        parse_address(text)

"""A node's client certificate is shown again after a start, and replaced when due; the API may be away meanwhile."""

import asyncio
import os
from datetime import datetime, timedelta
from pathlib import Path

import httpx
import pytest
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from app.agent.node.client_certificate import (
    LONGEST_SLEEP,
    PREPARE_SECONDS,
    RETRY_SECONDS,
    ClientCertificate,
    certificate_path,
    renew_at,
)
from app.api.auth import certificates
from app.client.api import Api
from tests.agent.fake_clock import BEGIN, FakeClock

DAY = timedelta(days=1)


class Shown(Api):
    """A client of an API that is away, which notes what it is to show."""

    def __init__(self) -> None:
        super().__init__("http://api", transport=httpx.MockTransport(lambda _: httpx.Response(500)))
        self.paths: list[Path] = []

    def without_certificate(self) -> Api:
        return Shown()

    async def use_certificate(self, path: Path) -> None:
        self.paths.append(path)


def keep(folder: Path, issued: datetime) -> Path:
    """Keep a certificate that was issued then, for a year: its key is in the file, as an agent's is."""
    made = certificates.ensure(folder / "tls", ["127.0.0.1"], now=issued)
    path = certificate_path(folder)
    path.write_bytes(made.cert.read_bytes())
    os.utime(path, (issued.timestamp(), issued.timestamp()))
    return path


def test_certificates_are_due_after_70_to_90_percent_of_their_life() -> None:
    found = {(renew_at(BEGIN, BEGIN + 100 * DAY, f"n{number}") - BEGIN) / DAY for number in range(100)}
    assert min(found) >= 70
    assert max(found) <= 90
    assert len(found) > 50


async def test_a_kept_certificate_is_shown_at_once_and_looked_at_again(tmp_path: Path) -> None:
    api, path = Shown(), keep(tmp_path, BEGIN - DAY)
    made = ClientCertificate(api, tmp_path, "n1", FakeClock())
    await made.prepare()
    assert api.paths == [path]
    assert await made._advance() == LONGEST_SLEEP
    assert load_pem_private_key(path.read_bytes(), None)


@pytest.mark.parametrize("content", [b"", b"no certificate", None])
async def test_a_broken_file_counts_as_none(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        certificate_path(tmp_path).write_bytes(content)
    api = Shown()
    assert await ClientCertificate(api, tmp_path, "n1", FakeClock())._advance() == RETRY_SECONDS
    assert api.paths == []


async def test_one_that_has_ended_is_not_shown_and_a_start_goes_on_without(tmp_path: Path) -> None:
    keep(tmp_path, BEGIN - 500 * DAY)
    api, clock = Shown(), FakeClock()
    preparing = asyncio.create_task(ClientCertificate(api, tmp_path, "n1", clock).prepare())
    async with asyncio.timeout(30):
        while not preparing.done():
            await asyncio.sleep(0.001)
            clock.advance(1.0)
    await preparing
    assert clock.elapsed() >= PREPARE_SECONDS
    assert api.paths == []


async def test_one_of_an_authority_that_was_replaced_is_not_shown_and_asked_for_again(tmp_path: Path) -> None:
    keep(tmp_path, BEGIN - DAY)
    own = tmp_path / "tls" / "ca.crt"
    other = certificates.ensure(tmp_path / "other", ["127.0.0.1"], now=BEGIN).ca
    (tmp_path / "both.crt").write_bytes(other.read_bytes() + own.read_bytes())
    found = []
    for authority in (own, tmp_path / "both.crt", other):
        made = ClientCertificate(Shown(), tmp_path, "n1", FakeClock(), authority)
        found.append((await made._show_kept(), await made._advance()))
    assert found == [(True, LONGEST_SLEEP), (True, LONGEST_SLEEP), (False, RETRY_SECONDS)]


async def test_one_that_is_due_is_asked_for_again(tmp_path: Path) -> None:
    keep(tmp_path, BEGIN - 360 * DAY)
    assert await ClientCertificate(Shown(), tmp_path, "n1", FakeClock())._advance() == RETRY_SECONDS  # it is away

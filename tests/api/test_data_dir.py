"""Data folder: each task takes in what has changed, once."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from app.api.auth import certificates
from app.api.auth.authenticator import digest_of
from app.api.auth.token_files import ADMIN
from app.api.data_dir import CertificateReload, CertificateRenewal, TokenReload, _stamps
from app.registry.verbs.objects import Registry
from app.settings import Settings

NOW = datetime.now(UTC)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path)


async def is_good(registry: Registry, token: str) -> bool:
    return await registry.store.tokens.holder(bytes.fromhex(digest_of(token)), registry.now()) is not None


async def test_a_token_that_is_written_to_the_file_is_good(registry: Registry, settings: Settings) -> None:
    path = settings.data_dir / ADMIN
    path.write_text("first")
    made = certificates.ensure(settings.data_dir / "tls", settings.certified_hosts)
    task = TokenReload(registry, settings, made.ca)
    await task.keep()
    path.unlink()
    path.write_text("second, which is longer")

    await task.run_once(NOW)

    assert [await is_good(registry, each) for each in ("first", "second, which is longer")] == [False, True]


async def test_another_certificate_is_used_once(settings: Settings) -> None:
    made = certificates.ensure(settings.data_dir / "tls", settings.certified_hosts)
    used: list[str] = []
    stamps = _stamps(made.ca, made.cert)
    task = CertificateReload(CertificateRenewal(settings), made, stamps, lambda: used.append("used"))
    await task.run_once(NOW)
    assert used == []
    made.cert.write_bytes(made.cert.read_bytes() + b"\n")

    await task.run_once(NOW)
    await task.run_once(NOW)

    assert used == ["used"]

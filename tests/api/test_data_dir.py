"""Data folder: each task takes in what has changed, once."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest

from app.api.auth import certificates
from app.api.auth.authenticator import digest_of
from app.api.auth.token_files import ADMIN
from app.api.auth.tokens import StoredTokens
from app.api.data_dir import CertificateReload, CertificateRenewal, DataDir, TokenReload, _stamps
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


async def test_a_token_is_good_at_the_first_look_up_after_it_was_written(
    registry: Registry, settings: Settings
) -> None:
    path = settings.data_dir / ADMIN
    path.write_text("first")
    data_dir = DataDir(registry, settings, "https://127.0.0.1")
    await data_dir.prepare()
    tokens = StoredTokens(registry, data_dir.take_in_tokens)
    assert await tokens.lookup(digest_of("first"))
    path.unlink()
    path.write_text("second, which is longer")

    # All at once: none may be answered from before the others have taken it in.
    found = await asyncio.gather(*(tokens.lookup(digest_of("second, which is longer")) for _ in range(8)))

    assert [user.name if user else "" for user in found] == ["admin"] * 8
    assert await tokens.lookup(digest_of("first")) is None


async def test_tokens_are_looked_up_while_the_kubeconfig_cannot_be_written(
    registry: Registry, settings: Settings
) -> None:
    path = settings.data_dir / ADMIN
    path.write_text("first")
    data_dir = DataDir(registry, settings, "https://127.0.0.1")
    await data_dir.prepare()
    (settings.data_dir / "kubeconfig").unlink()
    (settings.data_dir / "kubeconfig").mkdir()
    path.unlink()
    path.write_text("second, which is longer")

    assert await StoredTokens(registry, data_dir.take_in_tokens).lookup(digest_of("second, which is longer"))


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

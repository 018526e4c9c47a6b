"""The controller signs what was approved, says why it does not, and deletes what is old."""

from datetime import timedelta
from typing import Any

from msgspec.structs import replace

from app.controllers.auth.certificate_signing import CertificateSigningController
from app.kinds.auth.certificate_signing_request import KIND as REQUESTS
from app.kinds.auth.certificate_signing_request import CertificateSigningRequest, condition_text
from app.registry.verbs import objects
from app.registry.verbs.objects import Registry
from tests.conftest import Clock
from tests.controllers.running import SIGNED, running, settled, until
from tests.plans.test_certificate_signing import condition, csr, pem
from tests.registry.examples import create, get


async def request(registry: Registry, name: str, subject: bytes) -> None:
    made = csr(subject)
    await create(registry, REQUESTS, replace(made, metadata=replace(made.metadata, name=name)))


async def decide(registry: Registry, name: str, type_: str) -> None:
    def decided(old: Any) -> CertificateSigningRequest:
        return replace(old, status=replace(old.status, conditions=(condition(type_, registry.now()),)))

    await objects.rewrite(registry, REQUESTS, "", name, decided)


async def state(registry: Registry, name: str) -> str:
    found = await get(registry, REQUESTS, name, "")
    return condition_text(found) if found else "gone"


async def test_what_is_approved_is_signed_and_what_cannot_be_signed_fails(registry: Registry) -> None:
    await request(registry, "good", pem())
    await request(registry, "bad", pem(""))
    await request(registry, "denied", pem())
    async with running(registry, CertificateSigningController):
        await settled(registry)
        assert [await state(registry, each) for each in ("good", "bad")] == ["Pending", "Pending"]
        for name, decision in (("good", "Approved"), ("bad", "Approved"), ("denied", "Denied")):
            await decide(registry, name, decision)

        async def all_are_done() -> bool:
            found = [await state(registry, each) for each in ("good", "bad", "denied")]
            return found == ["Approved,Issued", "Approved,Failed", "Denied"]

        await until(registry, all_are_done)
    assert (await get(registry, REQUESTS, "good", "")).status.certificate == SIGNED
    failed = (await get(registry, REQUESTS, "bad", "")).status.conditions[-1]
    assert (failed.reason, failed.message) == (
        "SignerValidationFailure",
        "the subject of the request has no common name",
    )


async def test_old_requests_are_deleted(registry: Registry, clock: Clock) -> None:
    await request(registry, "pending", pem())
    await request(registry, "denied", pem())
    await decide(registry, "denied", "Denied")
    clock.now += timedelta(hours=1)
    async with running(registry, CertificateSigningController):
        await settled(registry)
        assert [await state(registry, each) for each in ("pending", "denied")] == ["Pending", "gone"]
    clock.now += timedelta(hours=23)
    async with running(registry, CertificateSigningController):
        await settled(registry)
    assert await state(registry, "pending") == "gone"

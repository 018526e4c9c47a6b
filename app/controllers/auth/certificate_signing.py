"""Certificate signing controller: signs approved CertificateSigningRequests by the cluster's authority, and deletes old ones.

It signs where the authority's key is: in the data folder of `jobplane up`, or a copy of its files. Elsewhere requests wait.
What reads and signs requests is imported with the first request: most clusters never have one.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from msgspec.structs import replace

from app.controllers.planned_write import PlannedWrite
from app.kinds.auth.certificate_signing_request import (
    FAILED,
    CertificateSigningRequest,
    CertificateSigningRequestCondition,
)
from app.kinds.auth.certificate_signing_request import KIND as REQUESTS
from app.machinery.base import Object
from app.plans.plan import Delete, Plan, SetStatus
from app.store import Key, Mirror

if TYPE_CHECKING:
    from app.plans.certificate_signing import Signing


class Signer(Protocol):
    """Signs certificates."""

    def __call__(self, signing: "Signing", now: datetime, /) -> bytes | None:
        """The certificate, PEM; None if the authority's key is not here."""
        ...


class CertificateSigningController:
    """`longest`: life of a certificate for which no shorter one was asked."""

    component = "certificate-controller"
    kinds = frozenset({REQUESTS.resource})

    def __init__(self, mirror: Mirror, sign: Signer, longest: timedelta) -> None:
        self._mirror, self._sign, self._longest = mirror, sign, longest

    def on_event(self, key: Key, _: Object | None, after: Object | None) -> Iterable[Key]:
        return [key] if key.kind == REQUESTS.resource and after is not None else []

    def enqueue_all(self) -> Iterable[Key]:
        return [Key(REQUESTS.resource, "", each.metadata.name) for each in self._mirror.all(REQUESTS.resource)]

    def reconcile(self, key: Key, now: datetime) -> Sequence[PlannedWrite]:
        from app.plans.certificate_signing import ends_at

        csr = cast("CertificateSigningRequest | None", self._mirror.get(key))
        if csr is None or csr.metadata.deletion_timestamp is not None:
            return []
        end = ends_at(csr)
        if end is not None and end <= now:
            return [PlannedWrite(Plan((Delete(csr),)), (csr,))]
        written = self._advance(csr, now)
        return [PlannedWrite(Plan((SetStatus(written),) if written else (), again_at=end), (csr,))]

    def _advance(self, csr: CertificateSigningRequest, now: datetime) -> CertificateSigningRequest | None:
        """Return the request approved, with its certificate, or with why it gets none; None if nothing changes."""
        from app.plans.certificate_signing import Refusal, approve, decide

        if (approved := approve(csr, now)) is not None:
            return approved
        decision = decide(csr, self._longest)
        if isinstance(decision, Refusal):
            failed = CertificateSigningRequestCondition(
                type=FAILED,
                status="True",
                reason="SignerValidationFailure",
                message=decision.message,
                last_update_time=now,
                last_transition_time=now,
            )
            return replace(csr, status=replace(csr.status, conditions=(*csr.status.conditions, failed)))
        certificate = self._sign(decision, now) if decision else None
        return replace(csr, status=replace(csr.status, certificate=certificate)) if certificate else None


def folder_signer(folder: Path) -> Signer:
    """Return a signer with the authority in a folder, `ca.crt` and `ca.key`, read each time: it may have been rotated."""

    def sign(signing: "Signing", now: datetime) -> bytes | None:
        from app.controllers.auth.authority_key import sign_by_folder

        return sign_by_folder(folder, signing, now)

    return sign

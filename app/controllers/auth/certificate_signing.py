"""Certificate signing controller: signs approved CertificateSigningRequests by the cluster's authority, and deletes old ones.

It signs where the authority's key is: in the data folder of `jobplane up`, or a copy of its files. Elsewhere requests wait.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Protocol, cast

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID
from msgspec.structs import replace

from app.controllers.planned_write import PlannedWrite
from app.kinds.auth.certificate_signing_request import (
    FAILED,
    CertificateSigningRequest,
    CertificateSigningRequestCondition,
)
from app.kinds.auth.certificate_signing_request import KIND as REQUESTS
from app.machinery.base import Object
from app.plans.certificate_signing import Refusal, Signing, approve, decide, ends_at
from app.plans.plan import Delete, Plan, SetStatus
from app.store import Key, Mirror
from app.structured_logging import Logger

BACKDATE = timedelta(minutes=5)  # clocks of other machines may be behind

logger = Logger(__name__)


class Signer(Protocol):
    """Signs certificates."""

    def __call__(self, signing: Signing, now: datetime, /) -> bytes | None:
        """The certificate, PEM; None if the authority's key is not here."""
        ...


class CertificateSigningController:
    """`longest`: life of a certificate for which no shorter one was asked."""

    component = "certificate-controller"

    def __init__(self, mirror: Mirror, sign: Signer, longest: timedelta) -> None:
        self._mirror, self._sign, self._longest = mirror, sign, longest

    def on_event(self, key: Key, _: Object | None, after: Object | None) -> Iterable[Key]:
        return [key] if key.kind == REQUESTS.resource and after is not None else []

    def enqueue_all(self) -> Iterable[Key]:
        return [Key(REQUESTS.resource, "", each.metadata.name) for each in self._mirror.all(REQUESTS.resource)]

    def reconcile(self, key: Key, now: datetime) -> Sequence[PlannedWrite]:
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

    def sign(signing: Signing, now: datetime) -> bytes | None:
        try:
            authority = x509.load_pem_x509_certificate((folder / "ca.crt").read_bytes())
            key = load_pem_private_key((folder / "ca.key").read_bytes(), password=None)
        except (OSError, ValueError) as error:
            logger.warning("cannot sign certificates: the authority's key is not here", path=str(folder), error=error)
            return None
        if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != authority.public_key():
            logger.warning("cannot sign certificates: ca.key is not the key of ca.crt", path=str(folder))
            return None
        return _sign(signing, authority, key, now)

    return sign


def _sign(signing: Signing, authority: x509.Certificate, key: ec.EllipticCurvePrivateKey, now: datetime) -> bytes:
    identifier = authority.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    public = signing.request.public_key()
    usage = dict.fromkeys(_NO_USAGES, False) | {"digital_signature": True}
    builder = (
        x509.CertificateBuilder(subject_name=signing.request.subject, issuer_name=authority.subject, public_key=public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATE)
        .not_valid_after(min(now + signing.life, authority.not_valid_after_utc))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.KeyUsage(**usage), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False)
    )
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)


_NO_USAGES = (
    "content_commitment",
    "key_encipherment",
    "data_encipherment",
    "key_agreement",
    "key_cert_sign",
    "crl_sign",
    "encipher_only",
    "decipher_only",
)

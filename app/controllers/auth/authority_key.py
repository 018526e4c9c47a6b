"""The key of the cluster's authority: signs client certificates with it. `certificate_signing` imports it when it signs."""

from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID

from app.plans.certificate_signing import Signing
from app.structured_logging import Logger

BACKDATE = timedelta(minutes=5)  # clocks of other machines may be behind
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

logger = Logger(__name__)


def sign_by_folder(folder: Path, signing: Signing, now: datetime) -> bytes | None:
    """Return the certificate, PEM; None, after a warning, if the folder lacks `ca.crt` or its key, `ca.key`."""
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

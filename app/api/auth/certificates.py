"""TLS certificates: a certificate authority, the server certificate that it signs, and the kubeconfig that trusts it.

Called when an API starts, and every few hours while it runs. Certificates pass strict verification (RFC 5280, as Python
3.13 and Go do it). The authority is kept, so that agents and kubeconfigs stay good, until it is rotated in two steps: in
between, clients are given both. The server's certificate is renewed when due, when hosts come in, and with the authority.
"""

import base64
import fcntl
import ipaddress
import os
import socket
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import yaml
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID

_CA_LIFE = timedelta(days=3650)
_LIFE = timedelta(days=365)
_RENEW_BEFORE = timedelta(days=90)  # its end
_SKEW = timedelta(days=1)  # clocks of other machines may be behind
_NEXT = "ca.next.pem"  # the next authority of a rotation, with its key
_ALWAYS = ("localhost", "127.0.0.1", "::1")
# By which pods reach the API, wherever they run.
_SERVICE = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local")


class Certificates(NamedTuple):
    """Paths of PEM files. `cert` and `key` are one file, so that no reader ever sees one without the other."""

    ca: Path
    cert: Path
    key: Path


class RotationError(Exception):
    """This step of a rotation is not possible now; the text says what to do."""


class _Pair(NamedTuple):
    """A certificate and its private key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def fingerprint(file: Path) -> str:
    """Return the SHA-256 of a server's certificate in hex, by which other replicas identify it."""
    return x509.load_pem_x509_certificate(file.read_bytes()).fingerprint(hashes.SHA256()).hex()


def ends_at(file: Path) -> datetime:
    """Return until when the first certificate of a PEM file is valid."""
    return x509.load_pem_x509_certificate(file.read_bytes()).not_valid_after_utc


def ensure(folder: Path, hosts: Sequence[str], *, now: datetime | None = None) -> Certificates:
    """Create or renew the server certificate for the hosts, this machine's name and loopback addresses."""
    now = now or datetime.now(UTC)
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    paths = Certificates(folder / "ca.crt", folder / "server.pem", folder / "server.pem")
    with _locked(folder):
        _certify(paths.cert, _load_or_make_authority(folder, now), hosts, now)
    return paths


def renew(folder: Path, hosts: Sequence[str], *, now: datetime) -> None:
    """Renew the server certificate while an API runs. Never replaces the authority, which clients trust."""
    with _locked(folder):
        if authority := _read(folder / "ca.crt", folder / "ca.key"):
            _certify(folder / "server.pem", authority, hosts, now)


def is_due(end: datetime, authority_end: datetime, now: datetime) -> bool:
    """Return whether to renew a certificate: it ends soon, and its authority lasts longer."""
    return now + _RENEW_BEFORE >= end and end < authority_end


def begin_rotation(folder: Path, *, now: datetime) -> None:
    """Begin a rotation: ca.crt gets a second authority, which clients trust besides the signing one. Idempotent."""
    with _locked(folder):
        current, following = _read(folder / "ca.crt", folder / "ca.key"), _read_next(folder)
        if current is None:
            raise RotationError(f"{folder} has no CA: start the API with this --data-dir first")
        if following is None:
            following = _new_authority(now)
            write_private(folder / _NEXT, _pem(following))
        both = _certificate_pem(current.certificate) + _certificate_pem(following.certificate)
        write_private(folder / "ca.crt", both, 0o644)


def finish_rotation(folder: Path) -> None:
    """Finish a rotation: the second authority signs, and is the only one in ca.crt."""
    with _locked(folder):
        following = _read_next(folder)
        if following is None:
            raise RotationError("no rotation has begun: run `jobplane certificates rotate` first")
        _write_authority(folder, following)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    with os.fdopen(os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _certify(path: Path, authority: _Pair, hosts: Sequence[str], now: datetime) -> None:
    """Renew the certificate if needed. Names that it has already stay: several machines may share the folder."""
    names = {*_general_names([*hosts, *_ALWAYS, *_SERVICE, socket.gethostname()])}
    held = _certified_names(path, authority.certificate, now)
    if held is None or not names <= held:
        write_private(path, _pem(_sign(authority, _alternative_names(names | (held or set())), now)))


def kubeconfig(server_url: str, ca_pem: str, token: str, name: str = "jobplane") -> str:
    """Return the kubeconfig for this server and token, as YAML."""
    cluster = {"server": server_url, "certificate-authority-data": base64.b64encode(ca_pem.encode()).decode()}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": name, "user": {"token": token}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": "default"}}],
        "current-context": name,
    }
    return yaml.safe_dump(document, sort_keys=False)


def write_private(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Write a file atomically, never readable by others meanwhile."""
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        if os.geteuid() == 0:  # what root writes into another user's folder is that user's
            owner = (path if path.exists() else path.parent).stat()
            os.chown(name, owner.st_uid, owner.st_gid)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        Path(name).chmod(mode)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _load_or_make_authority(folder: Path, now: datetime) -> _Pair:
    """The authority in the folder, unless it is broken or about to end; then the second one of a rotation, or a new one."""
    kept = _read(folder / "ca.crt", folder / "ca.key")
    if kept and now + _RENEW_BEFORE < kept.certificate.not_valid_after_utc:
        return kept
    return _write_authority(folder, _read_next(folder) or _new_authority(now))


def _write_authority(folder: Path, authority: _Pair) -> _Pair:
    """Write the authority's files. If this is interrupted, they do not match each other, and the next start does it again."""
    write_private(folder / "ca.key", _key_pem(authority.key))
    write_private(folder / "ca.crt", _certificate_pem(authority.certificate), 0o644)
    (folder / _NEXT).unlink(missing_ok=True)
    return authority


def _read_next(folder: Path) -> _Pair | None:
    return _read(folder / _NEXT, folder / _NEXT)


def _read(certificate_path: Path, key_path: Path) -> _Pair | None:
    """Read a certificate with its key; None if a file is missing or malformed, or if they do not match."""
    try:
        certificate = x509.load_pem_x509_certificate(certificate_path.read_bytes())
        key = load_pem_private_key(key_path.read_bytes(), password=None)
    except (FileNotFoundError, ValueError):
        return None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or certificate.public_key() != key.public_key():
        return None
    return _Pair(certificate, key)


def _certified_names(path: Path, authority: x509.Certificate, now: datetime) -> set[x509.GeneralName] | None:
    """Return the names in the file's certificate; None if another authority signed it, or if it is due for renewal."""
    kept = _read(path, path)
    if kept is None or is_due(kept.certificate.not_valid_after_utc, authority.not_valid_after_utc, now):
        return None
    try:
        kept.certificate.verify_directly_issued_by(authority)
        return {*kept.certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value}
    except (ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
        return None


def _general_names(hosts: Sequence[str]) -> Iterator[x509.GeneralName]:
    """Yield the subject alternative names of hosts. Unspecified addresses (0.0.0.0, ::) are skipped."""
    for host in hosts:
        try:
            address = ipaddress.ip_address(host.strip("[]"))
        except ValueError:
            if word := host.lower().rstrip("."):
                yield x509.DNSName(word.encode("idna").decode())
        else:
            if not address.is_unspecified:
                yield x509.IPAddress(address)


def _alternative_names(names: Iterable[x509.GeneralName]) -> x509.SubjectAlternativeName:
    return x509.SubjectAlternativeName(sorted(names, key=str))


def _new_authority(now: datetime) -> _Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    # A serial in the name: clients that trust an older authority of ours must not take one for the other.
    serial = x509.random_serial_number()
    name = _distinguished_name(f"jobplane authority {serial % 16**8:08x}")
    builder = (
        _builder(name, name, key.public_key(), (now, now + _CA_LIFE))
        .serial_number(serial)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return _Pair(builder.sign(key, hashes.SHA256()), key)


def _sign(authority: _Pair, names: x509.SubjectAlternativeName, now: datetime) -> _Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    issuer = authority.certificate
    end = min(now + _LIFE, issuer.not_valid_after_utc)
    identifier = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    builder = (
        _builder(_distinguished_name("jobplane"), issuer.subject, key.public_key(), (now, end))
        .serial_number(x509.random_serial_number())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False)
        .add_extension(names, critical=False)
    )
    return _Pair(builder.sign(authority.key, hashes.SHA256()), key)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, life: tuple[datetime, datetime]
) -> x509.CertificateBuilder:
    start, end = life
    return x509.CertificateBuilder(
        issuer_name=issuer, subject_name=subject, public_key=key, not_valid_before=start - _SKEW, not_valid_after=end
    )


def _distinguished_name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common_name)])


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(pair: _Pair) -> bytes:
    return _certificate_pem(pair.certificate) + _key_pem(pair.key)


def _certificate_pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

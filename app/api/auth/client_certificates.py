"""Client certificates: the user of a TLS connection whose client has shown one that the cluster's authority signed.

`app.api.http.connection` puts a `Peer` into the state of the requests of such a connection, and `impersonation` asks for its user
if a request has no token. The common name is the user, organizations are the groups, as in Kubernetes. TLS has checked the
certificate once; its end counts for each request, and its authority has to be one that is trusted now.
"""

from collections.abc import Callable
from datetime import datetime
from hashlib import sha256

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.x509.oid import ExtendedKeyUsageOID

from app.api.auth.authenticator import AUTHENTICATED, User
from app.api.http.connection import Peer
from app.machinery.errors import ApiError
from app.plans.certificate_signing import names_of

_CREDENTIAL = "authentication.kubernetes.io/credential-id"


class ClientCertificates:
    """`authority`: returns the certificates that may have signed, PEM; none without TLS."""

    def __init__(self, authority: Callable[[], str], now: Callable[[], datetime]) -> None:
        self._authority, self._now = authority, now

    def user(self, peer: Peer) -> User:
        """Return the user of a connection. 401 if its certificate has ended, or names nobody."""
        if peer.user is None:
            peer.user = self._verify(peer.certificate)
        user: User = peer.user
        if user.expires_at is None or user.expires_at <= self._now():
            raise _refused()
        return user

    def _verify(self, der: bytes) -> User:
        certificate = x509.load_der_x509_certificate(der)
        name, groups = names_of(certificate.subject)
        if not name or not _is_for_clients(certificate) or not self._is_signed(certificate):
            raise _refused()
        return User(
            name=name,
            groups=tuple(dict.fromkeys((*groups, AUTHENTICATED))),
            extra={_CREDENTIAL: (f"X509SHA256={sha256(der).hexdigest()}",)},
            expires_at=certificate.not_valid_after_utc,
        )

    def _is_signed(self, certificate: x509.Certificate) -> bool:
        pem = self._authority().encode()
        return any(_has_signed(each, certificate) for each in (x509.load_pem_x509_certificates(pem) if pem else ()))


def _has_signed(authority: x509.Certificate, certificate: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _is_for_clients(certificate: x509.Certificate) -> bool:
    try:
        usages = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except (x509.ExtensionNotFound, ValueError):
        return False
    return ExtendedKeyUsageOID.CLIENT_AUTH in usages


def _refused() -> ApiError:
    return ApiError(401, "Unauthorized", "Unauthorized")

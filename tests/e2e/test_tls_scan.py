"""The serving socket as a scanner sees it: protocols, cipher suites, renegotiation, compression, certificate, HSTS."""

import re
import socket
import ssl
import subprocess
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from tests.e2e.cluster import Cluster

AEAD_WITH_FORWARD_SECRECY = re.compile(
    r"TLS_(AES_\d+_GCM_SHA\d+|CHACHA20_POLY1305_SHA256|AES_128_CCM_SHA256)|ECDHE-ECDSA-(AES\d+-GCM-SHA\d+|CHACHA20-POLY1305)"
)
LONGEST = timedelta(days=398)  # that browsers accept


def context(
    cluster: Cluster, version: ssl.TLSVersion | None = None, ciphers: str = "ALL:@SECLEVEL=0"
) -> ssl.SSLContext:
    """A client that takes whatever it is offered."""
    made = ssl.create_default_context(cafile=str(cluster.folder / "tls" / "ca.crt"))
    made.set_ciphers(ciphers)
    made.minimum_version = version or ssl.TLSVersion.MINIMUM_SUPPORTED
    made.maximum_version = version or ssl.TLSVersion.MAXIMUM_SUPPORTED
    return made


def connect(cluster: Cluster, client: ssl.SSLContext) -> ssl.SSLSocket:
    return client.wrap_socket(
        socket.create_connection(("127.0.0.1", cluster.port), timeout=30), server_hostname="127.0.0.1"
    )


def is_accepted(cluster: Cluster, client: ssl.SSLContext) -> bool:
    try:
        connect(cluster, client).close()
    except (ssl.SSLError, ConnectionResetError):
        return False
    return True


@pytest.mark.parametrize(
    ("version", "is_offered"), [("TLSv1", False), ("TLSv1_1", False), ("TLSv1_2", True), ("TLSv1_3", True)]
)
@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_only_tls_1_2_and_1_3_are_offered(cluster: Cluster, version: str, is_offered: bool) -> None:
    assert is_accepted(cluster, context(cluster, ssl.TLSVersion[version])) is is_offered


def test_each_cipher_suite_has_forward_secrecy_and_aead(cluster: Cluster) -> None:
    every = [each["name"] for each in context(cluster).get_ciphers() if each["protocol"] != "TLSv1.3"]
    tls_1_2 = ssl.TLSVersion.TLSv1_2
    taken = {each for each in every if is_accepted(cluster, context(cluster, tls_1_2, f"{each}:@SECLEVEL=0"))}
    assert len(every) > 50
    assert taken == {"ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"}
    with connect(cluster, context(cluster)) as newest:
        assert newest.version() == "TLSv1.3"
        assert AEAD_WITH_FORWARD_SECRECY.fullmatch((newest.cipher() or ("",))[0])
        assert newest.compression() is None


def test_a_client_cannot_renegotiate(cluster: Cluster) -> None:
    command = ["openssl", "s_client", "-connect", f"127.0.0.1:{cluster.port}", "-tls1_2"]
    done = subprocess.run(command, input="R\n", capture_output=True, text=True, timeout=60, check=False)
    said = done.stdout + done.stderr
    assert "RENEGOTIATING" in said
    assert "no renegotiation" in said
    assert "Compression: NONE" in said


def test_the_certificate_is_strong_short_lived_and_complete(cluster: Cluster) -> None:
    with connect(cluster, context(cluster)) as shown:
        certificate = x509.load_der_x509_certificate(shown.getpeercert(binary_form=True) or b"")
    authority = x509.load_pem_x509_certificate((cluster.folder / "tls" / "ca.crt").read_bytes())
    certificate.verify_directly_issued_by(authority)
    key = certificate.public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)
    assert key.key_size >= 256
    assert certificate.signature_hash_algorithm is not None
    assert certificate.signature_hash_algorithm.name == "sha256"
    now = datetime.now(UTC)
    assert certificate.not_valid_before_utc <= now < certificate.not_valid_after_utc
    assert certificate.not_valid_after_utc - certificate.not_valid_before_utc <= LONGEST
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "localhost" in names.get_values_for_type(x509.DNSName)
    assert {"127.0.0.1", "::1"} <= {str(each) for each in names.get_values_for_type(x509.IPAddress)}
    usages = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usages) == [ExtendedKeyUsageOID.SERVER_AUTH]
    assert not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert authority.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def test_the_page_asks_for_https_from_then_on_but_on_loopback(cluster: Cluster) -> None:
    with cluster.client(token="") as client:
        named, here = (client.get("/ui", headers=each).headers for each in ({"Host": "jobs.example.org"}, {}))
    assert named["Strict-Transport-Security"] == "max-age=31536000"
    assert "Strict-Transport-Security" not in here
    assert named["X-Content-Type-Options"] == "nosniff"

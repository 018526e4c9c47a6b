"""The authority and the certificate, checked by the strictest verifier at hand: a real handshake."""

import base64
import shutil
import socket
import ssl
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml
from cryptography import x509

from app.api.certificates import Certificates, ensure, kubeconfig, write_private

NOW = datetime.now(UTC).replace(microsecond=0)


def serial(path: Path) -> int:
    return x509.load_pem_x509_certificate(path.read_bytes()).serial_number


def handshake(made: Certificates, host: str, ca: Path | None = None) -> None:
    """Both ends in memory. Raises what a strict client would."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(made.cert, made.key)
    client = ssl.create_default_context(cafile=str(ca or made.ca))
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname=host),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    while ends:
        for end in tuple(ends):
            try:
                end.do_handshake()
                ends.remove(end)
            except ssl.SSLWantReadError:
                continue


@pytest.mark.parametrize(
    "host", ["localhost", "127.0.0.1", "::1", "jobs.example.org", "10.0.0.7", socket.gethostname()]
)
def test_a_strict_client_accepts_every_host(tmp_path: Path, host: str) -> None:
    handshake(ensure(tmp_path, ["jobs.example.org", "10.0.0.7"]), host)


def test_a_client_refuses_a_host_that_was_not_named(tmp_path: Path) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        handshake(ensure(tmp_path, []), "elsewhere.example.org")


def test_a_client_of_another_authority_refuses(tmp_path: Path) -> None:
    other = ensure(tmp_path / "other", [])
    with pytest.raises(ssl.SSLCertVerificationError, match="unable to get local issuer certificate"):
        handshake(ensure(tmp_path / "ours", []), "localhost", other.ca)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_openssl_finds_nothing_to_object_to(tmp_path: Path) -> None:
    made = ensure(tmp_path, [])
    subprocess.run(
        ["openssl", "verify", "-x509_strict", "-purpose", "sslserver", "-CAfile", made.ca, made.cert],
        check=True,
        capture_output=True,
    )


def test_an_address_that_means_all_addresses_is_not_certified(tmp_path: Path) -> None:
    made = ensure(tmp_path, ["0.0.0.0", "::"])
    again = ensure(tmp_path, [])
    assert serial(made.cert) == serial(again.cert)


def test_a_second_start_changes_nothing(tmp_path: Path) -> None:
    first = ensure(tmp_path, ["b.example.org", "a.example.org"])
    before = first.ca.read_bytes(), first.cert.read_bytes()
    second = ensure(tmp_path, ["a.example.org", "B.example.org."])
    assert (second.ca.read_bytes(), second.cert.read_bytes()) == before


@pytest.mark.parametrize(
    ("hosts", "later"),
    [
        pytest.param(["new.example.org"], timedelta(), id="hosts change"),
        pytest.param([], timedelta(days=300), id="its end is near"),
        pytest.param([], timedelta(days=900), id="it has ended"),
    ],
)
def test_the_certificate_is_renewed_under_the_same_authority_when(
    tmp_path: Path, hosts: list[str], later: timedelta
) -> None:
    old = ensure(tmp_path, [], now=NOW)
    authority, certificate = serial(old.ca), serial(old.cert)
    new = ensure(tmp_path, hosts, now=NOW + later)
    assert serial(new.ca) == authority
    assert serial(new.cert) != certificate


def test_an_authority_near_its_end_is_replaced_with_all_it_signed(tmp_path: Path) -> None:
    old = ensure(tmp_path, [], now=NOW - timedelta(days=3600))
    authority = serial(old.ca)
    new = ensure(tmp_path, [], now=NOW)
    assert serial(new.ca) != authority
    handshake(new, "localhost")


@pytest.mark.parametrize("name", ["ca.crt", "ca.key", "server.pem"])
@pytest.mark.parametrize("damage", ["missing", "cut short", "somebody else's"])
def test_a_damaged_file_is_made_again(tmp_path: Path, name: str, damage: str) -> None:
    ensure(tmp_path / "ours", [])
    path = tmp_path / "ours" / name
    match damage:
        case "missing":
            path.unlink()
        case "cut short":
            path.write_bytes(path.read_bytes()[:60])
        case _:
            ensure(tmp_path / "other", [])
            path.write_bytes((tmp_path / "other" / name).read_bytes())
    handshake(ensure(tmp_path / "ours", []), "localhost")


def test_only_the_authoritys_certificate_is_for_all_to_read(tmp_path: Path) -> None:
    ensure(tmp_path, [])
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir() if path.name != "lock"}
    assert modes == {"ca.crt": 0o644, "ca.key": 0o600, "server.pem": 0o600}


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(IsADirectoryError):
        write_private(tmp_path / "taken", b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_the_kubeconfig_names_server_authority_and_token() -> None:
    document = yaml.safe_load(kubeconfig("https://127.0.0.1:6443", "PEM\n", "secret"))
    [cluster], [user], [context] = document["clusters"], document["users"], document["contexts"]
    assert cluster["cluster"]["server"] == "https://127.0.0.1:6443"
    assert base64.b64decode(cluster["cluster"]["certificate-authority-data"]) == b"PEM\n"
    assert user["user"] == {"token": "secret"}
    assert context["context"] == {"cluster": "jobplane", "user": "jobplane", "namespace": "default"}
    assert document["current-context"] == context["name"]


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_kubectl_reads_the_kubeconfig(tmp_path: Path) -> None:
    made = ensure(tmp_path, [])
    path = tmp_path / "kubeconfig"
    write_private(path, kubeconfig("https://127.0.0.1:6443", made.ca.read_text(), "secret").encode())
    shown = subprocess.check_output(
        ["kubectl", "--kubeconfig", path, "config", "view", "--minify", "-o", "jsonpath={..namespace}"], text=True
    )
    assert shown == "default"

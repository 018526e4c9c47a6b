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

from app.api.auth.certificates import (
    Certificates,
    RotationError,
    begin_rotation,
    ensure,
    finish_rotation,
    is_due,
    kubeconfig,
    renew,
    write_private,
)

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
    begin_rotation(tmp_path, now=NOW)
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert modes == {"lock": 0o600, "ca.crt": 0o644, "ca.key": 0o600, "server.pem": 0o600, "ca.next.pem": 0o600}


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


# While the API runs


@pytest.mark.parametrize(
    ("end", "authority_end", "due"),
    [
        pytest.param(365, 3650, False, id="not when it is fresh"),
        pytest.param(91, 3650, False, id="not yet"),
        pytest.param(90, 3650, True, id="three months before its end"),
        pytest.param(-1, 3650, True, id="after its end"),
        pytest.param(30, 30, False, id="not when it lasts as long as its authority"),
    ],
)
def test_a_certificate_is_due(end: int, authority_end: int, due: bool) -> None:
    assert is_due(NOW + timedelta(days=end), NOW + timedelta(days=authority_end), NOW) is due


@pytest.mark.parametrize(("days", "renewed"), [(274, False), (276, True), (400, True)])
def test_a_running_api_renews_its_certificate_in_time(tmp_path: Path, days: int, renewed: bool) -> None:
    made = ensure(tmp_path, ["a.example.org"], now=NOW)
    before = serial(made.ca), serial(made.cert)
    renew(tmp_path, ["a.example.org"], now=NOW + timedelta(days=days))
    assert (serial(made.ca), serial(made.cert) != before[1]) == (before[0], renewed)


def test_a_running_api_never_replaces_its_authority(tmp_path: Path) -> None:
    made = ensure(tmp_path, [], now=NOW)
    before = made.ca.read_bytes()
    for days in (3600, 4000):
        renew(tmp_path, [], now=NOW + timedelta(days=days))
    assert made.ca.read_bytes() == before

    (tmp_path / "ca.key").unlink()
    renew(tmp_path, ["new.example.org"], now=NOW)
    assert made.ca.read_bytes() == before


def test_machines_that_share_a_folder_do_not_take_each_others_names(tmp_path: Path) -> None:
    ensure(tmp_path, ["one.example.org"])
    made = ensure(tmp_path, ["two.example.org"])
    before = serial(made.cert)
    for host in ("one.example.org", "two.example.org"):
        renew(tmp_path, [host], now=NOW)
        handshake(made, host)
    assert serial(made.cert) == before


def test_machines_with_a_copy_of_the_authority_are_trusted_alike(tmp_path: Path) -> None:
    first = ensure(tmp_path / "one", ["one.example.org"])
    (tmp_path / "two").mkdir()
    for name in ("ca.crt", "ca.key"):
        shutil.copy(tmp_path / "one" / name, tmp_path / "two")
    handshake(ensure(tmp_path / "two", ["two.example.org"]), "two.example.org", first.ca)


# Another authority


def test_a_rotation_lets_clients_trust_both_authorities_in_between(tmp_path: Path) -> None:
    made, old, both = ensure(tmp_path / "tls", []), tmp_path / "old.crt", tmp_path / "both.crt"
    old.write_bytes(made.ca.read_bytes())
    begin_rotation(tmp_path / "tls", now=NOW)
    begin_rotation(tmp_path / "tls", now=NOW)  # harmless to repeat
    both.write_bytes(made.ca.read_bytes())
    for trusted in (old, both):
        handshake(ensure(tmp_path / "tls", []), "localhost", trusted)

    finish_rotation(tmp_path / "tls")
    renew(tmp_path / "tls", [], now=NOW)

    for trusted in (both, made.ca):
        handshake(made, "localhost", trusted)
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(made, "localhost", old)
    assert both.read_bytes().startswith(old.read_bytes())
    assert made.ca.read_bytes() == both.read_bytes().removeprefix(old.read_bytes())
    assert {path.name for path in (tmp_path / "tls").iterdir()} == {"ca.crt", "ca.key", "server.pem", "lock"}


def test_a_rotation_that_was_cut_short_is_finished_by_the_next_start(tmp_path: Path) -> None:
    made = ensure(tmp_path, [])
    begin_rotation(tmp_path, now=NOW)
    both, following = made.ca.read_bytes(), (tmp_path / "ca.next.pem").read_bytes()
    finish_rotation(tmp_path)
    after = made.ca.read_bytes()
    made.ca.write_bytes(both)  # the key was written, and no more
    (tmp_path / "ca.next.pem").write_bytes(following)

    handshake(ensure(tmp_path, []), "localhost")

    assert made.ca.read_bytes() == after


def test_a_rotation_has_an_order(tmp_path: Path) -> None:
    with pytest.raises(RotationError, match="start the API"):
        begin_rotation(tmp_path, now=NOW)
    ensure(tmp_path, [])
    with pytest.raises(RotationError, match="jobplane certificates rotate"):
        finish_rotation(tmp_path)

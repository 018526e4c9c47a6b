"""The search for secret values finds them, in every place and form: without this, "nothing was found" would say nothing."""

import base64
import secrets
import subprocess
from pathlib import Path

import httpx
import pytest

from tests.e2e.cluster import Cluster
from tests.e2e.secret_values import ALLOWED, KNOWN, SecretValues, find_leaks, forms

VALUE = "v-f0c5a1d2e3b4c5d6e7f8"


@pytest.fixture
def values() -> SecretValues:
    made = SecretValues()
    made.note_credential(VALUE, "a token")
    return made


@pytest.mark.parametrize("form", sorted(forms(VALUE)))
@pytest.mark.parametrize(
    "place", ["data/audit/audit.log", "data/postgres/base/5/1234", "data/agent/pods/u/state", "data.log"]
)
def test_a_value_is_found_in_any_form_and_place(tmp_path: Path, values: SecretValues, place: str, form: bytes) -> None:
    path = tmp_path / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\0before \xff" + form + b"after\n")
    found = find_leaks(tmp_path / "data", [tmp_path / "data.log"], values=values)
    assert [str(each) for each in found] == [f"{place}: a token"]


@pytest.mark.parametrize("pattern", ALLOWED)
def test_a_credential_may_stand_in_its_own_file_and_data_of_a_secret_may_not(tmp_path: Path, pattern: str) -> None:
    path = tmp_path / "data" / pattern.replace("*", "x")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(VALUE)
    as_credential, as_data = SecretValues(), SecretValues()
    as_credential.note_credential(VALUE, "a token")
    as_data.note_data(VALUE, "data")
    assert find_leaks(tmp_path / "data", values=as_credential) == []
    is_in_postgres = pattern.startswith("postgres/")
    assert len(find_leaks(tmp_path / "data", values=as_data)) == (0 if is_in_postgres else 1)
    assert len(find_leaks(tmp_path / "data", values=as_data, encrypted=True)) == 1


def test_a_private_key_is_found_by_one_of_its_lines(tmp_path: Path) -> None:
    pem = subprocess.run(
        ["openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"],
        capture_output=True,
        check=True,
    ).stdout.decode()
    values = SecretValues()
    values.note_private_keys(pem, "private key")
    (tmp_path / "data.log").write_text(f"key: {pem.splitlines()[1]}")
    assert [each.what for each in find_leaks(tmp_path, values=values)] == ["private key"]


def test_values_of_several_lines_and_short_ones_are_found(tmp_path: Path) -> None:
    lines = [f"{secrets.token_urlsafe(24)}" for _ in range(3)]
    certificate = "-----BEGIN CERTIFICATE-----\nMIIBpublicpublicpublicpublic\n-----END CERTIFICATE-----\n"
    key = f"-----BEGIN PRIVATE KEY-----\n{lines[0]}\n{lines[1]}\n-----END PRIVATE KEY-----\n"
    values = SecretValues()
    values.note_secret(
        {"stringData": {"a": certificate + key, "b": f"user: x\n{lines[2]}\n", "c": "aB3-xyzw", "d": "word"}}
    )

    for text, found in {
        f'{{"tls.key": "...\\n{lines[1]}\\n"}}': True,
        base64.b64encode((certificate + key).encode()).decode(): True,
        lines[2]: True,
        "pin aB3-xyzw": True,
        "MIIBpublicpublicpublicpublic": False,
        "-----BEGIN PRIVATE KEY----- word": False,
    }.items():
        (tmp_path / "data.log").write_text(text)
        assert bool(find_leaks(tmp_path, values=values)) == found, text


def test_what_passes_a_client_and_a_command_is_noted(cluster: Cluster) -> None:
    value = f"seen-{secrets.token_hex(16)}"
    body = {"metadata": {"generateName": "seen-"}, "data": {"k": base64.b64encode(value.encode()).decode()}}
    with cluster.client() as client:
        made = client.post("/api/v1/namespaces/default/secrets", json=body)
        client.delete(f"/api/v1/namespaces/default/secrets/{made.json()['metadata']['name']}").raise_for_status()
        token = client.post("/apis/agents.jobplane.dev/v1/jointokens", json={"ttlSeconds": 60}).json()
        client.delete(f"/apis/agents.jobplane.dev/v1/jointokens/{token['metadata']['name']}").raise_for_status()
    assert value in KNOWN.data
    assert {token["token"], cluster.token()} <= set(KNOWN.credentials)
    values = SecretValues()
    values.note_output(
        "jobplane agent --server https://x --join-token abc123.0123456789abcdefghij --ca-hash sha256:00\n"
    )
    assert list(values.credentials) == ["abc123.0123456789abcdefghij"]


def test_a_value_in_the_database_is_found_but_in_rows_of_secrets(cluster: Cluster, tmp_path: Path) -> None:
    """One is long, so that Postgres compresses it: its own files would not show it."""
    hidden, open_ = (f"{each}-{secrets.token_hex(16)}" for each in ("secret", "open"))
    values = SecretValues()
    for each in (hidden, open_):
        values.note_credential(each, "a token")
    api = "/api/v1/namespaces/default"
    with cluster.client() as client:
        client.post(
            f"{api}/secrets", json={"metadata": {"name": "leak"}, "stringData": {"k": hidden}}
        ).raise_for_status()
        assert tables(cluster, tmp_path / "secret", values) == []
        config = {"metadata": {"name": "leak"}, "data": {"k": open_ + "x" * 5000}}
        client.post(f"{api}/configmaps", json=config).raise_for_status()
        assert tables(cluster, tmp_path / "config", values) == ["history"]
        event(client, open_)
        assert tables(cluster, tmp_path / "event", values) == ["answer of GET  api v1 events", "history"]
        for kind in ("secrets", "configmaps"):
            client.delete(f"{api}/{kind}/leak").raise_for_status()


def tables(cluster: Cluster, folder: Path, values: SecretValues) -> list[str]:
    folder.mkdir()
    cluster.dump(folder)
    return sorted(Path(each.place).name for each in find_leaks(folder / "none", dump=folder, values=values))


def event(client: httpx.Client, message: str) -> None:
    involved = {"kind": "Pod", "namespace": "default", "name": "leak"}
    body = {"metadata": {"generateName": "leak-"}, "involvedObject": involved, "message": message, "type": "Normal"}
    client.post("/api/v1/namespaces/default/events", json=body).raise_for_status()

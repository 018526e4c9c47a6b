"""Secret values of the Jobplanes that tests start, and the search for them where no secret may stand.

`Cluster` plants values when it starts, notes those that its clients send and get, and asks `find_leaks` when it ends. What is
searched: the log of all processes, every file of the data folder (audit log, agents' state, Postgres' files and WAL), every
table as `pg_dump` would write it (objects with their history, events, job records, logs of pods, webhooks), and what
`/metrics` and the list of events answer.

Credentials (tokens, private keys, passwords) may stand in their own files only. Data of Secrets may stand in rows of Secrets,
and in Postgres' files, unless the cluster encrypts them.
"""

import asyncio
import base64
import os
import re
import secrets
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import asyncpg
import httpx
import msgspec
import yaml
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from app.postgres.embedded_postgres import Postgres

SHORTEST = (
    16  # characters: shorter ones stand somewhere by chance, unless they have small and capital letters and digits
)
SHORTEST_MIXED = 8
PLANTED = "planted"  # name of the Secrets
_NAMESPACE = "/api/v1/namespaces/kube-system"
_JOIN_TOKENS = "/apis/agents.jobplane.dev/v1/jointokens"
# Versions as `history` shows them: packed, they would hide a value.
_TABLES = """select relname from pg_class where relnamespace = 'public'::regnamespace
    and (relkind = 'r' and relname <> 'versions' or relname = 'history')"""
_SECRETS = "select body from history where kind = 'secrets' and change <> 'D'"
_PEM_KEY = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----\n(.*?)-----END", re.DOTALL)
_CERTIFICATE = re.compile(r"-----BEGIN [A-Z ]*CERTIFICATE-----\n.*?-----END [A-Z ]*CERTIFICATE-----", re.DOTALL)
_MIXED = [re.compile(each) for each in ("[a-z]", "[A-Z]", "[0-9]")]
_TOKENS = re.compile(r"(?:--join-token |(?:token|signin)=)([\w.-]{16,})|^(?=.*[A-Z])([\w.-]{43,})$", re.MULTILINE)

# Files of a data folder that have credentials because that is what they are for.
ALLOWED = {
    "*.token": "token of the administrator, or of `jobplane up`'s agent",
    "agent/node.token": "credential of a node that has joined",
    "agent/node.token.new": "credential of a node while it is being renewed",
    "kubeconfig": "kubeconfig of the administrator",
    "tls/*": "private keys of the API and of its authority",
    "postgres/pgpass": "password of `jobplane up`'s Postgres, for pg_dump",
    "agent/client.pem*": "private key of an agent's client certificate",
}


class SecretValues:
    """Values that this test process knows of."""

    def __init__(self) -> None:
        self.credentials: dict[str, str] = {}
        self.data: dict[str, str] = {}
        """Of Secrets. Each value with what it is."""

    def note_credential(self, value: str, what: str) -> str:
        return self._note(self.credentials, value, what)

    def note_data(self, value: str, what: str) -> str:
        return self._note(self.data, value, what)

    def _note(self, values: dict[str, str], value: str, what: str) -> str:
        if len(value) >= SHORTEST or (len(value) >= SHORTEST_MIXED and all(each.search(value) for each in _MIXED)):
            values.setdefault(value, what)
        return value

    def note_secret(self, obj: Any) -> None:
        """Note what a Secret has as `data`, in base64, and `stringData`."""
        what = f"data of Secret {obj.get('metadata', {}).get('name')}"
        for text in (obj.get("stringData") or {}).values():
            self._note_text(str(text), what)
        for encoded in (obj.get("data") or {}).values():
            with suppress(ValueError, TypeError):
                self._note_text(base64.b64decode(encoded).decode(errors="replace"), what)

    def _note_text(self, text: str, what: str) -> None:
        """Of several lines, note each that is no part of a certificate, which nobody hides, and the whole in base64."""
        if "\n" not in text:
            self.note_data(text, what)
            return
        for line in _CERTIFICATE.sub("", text).splitlines():
            if len(line) >= SHORTEST and not line.startswith("-----") and " " not in line:
                self.note_data(line, what)
        if _PEM_KEY.search(text):
            self.note_data(base64.b64encode(text.encode()).decode(), what)

    def note_private_keys(self, pem: str, what: str) -> None:
        """Note the lines of private keys: those that are long enough to have most of the key."""
        for body in _PEM_KEY.findall(pem):
            for line in body.splitlines():
                if len(line) >= 60:
                    self.note_credential(line, what)

    def note_folder(self, folder: Path) -> None:
        """Note the credentials in the files of a data folder."""
        for path in (*folder.glob("*.token"), *folder.glob("agent/*.token*")):
            self.note_credential(path.read_text().strip(), f"token of {path.name}")
        for path in (*folder.glob("tls/*.pem"), *folder.glob("tls/*.key"), *folder.glob("agent/*.pem*")):
            self.note_private_keys(path.read_text(), f"private key of {path.name}")
        if (passfile := folder / "postgres" / "pgpass").exists():
            self.note_credential(passfile.read_text().strip().rpartition(":")[2], "password of Postgres")
        if (kubeconfig := folder / "kubeconfig").exists():
            for user in yaml.safe_load(kubeconfig.read_text())["users"]:
                self.note_credential(user["user"].get("token", ""), "token of the kubeconfig")

    def note_output(self, printed: str) -> None:
        """Note tokens that a command of ours has printed: join tokens, tokens, links to the page."""
        for found in _TOKENS.finditer(printed):
            self.note_credential(found[1] or found[2], "token that a command has printed")

    def note_exchange(self, response: httpx.Response) -> None:
        """Note what a request for a token has got, and what a write of a Secret has sent. A hook of httpx."""
        method, path = response.request.method, response.request.url.path
        if method == "POST" and path.endswith(("/token", "/jointokens", "/ui/signin", "/ui/codes")):
            response.read()
            body = _decode(response.content)
            status = body.get("status")  # of a refusal, it is a word, and `code` a number
            token = status.get("token") if isinstance(status, dict) else None
            for value in (body.get("token"), body.get("code"), token):
                self.note_credential(str(value or ""), f"answer of POST {path}")
        elif method in ("POST", "PUT", "PATCH") and "/secrets" in path:
            with suppress(httpx.RequestNotRead):
                self.note_secret(_decode(response.request.content))


def _decode(content: bytes) -> Any:
    try:
        found = msgspec.json.decode(content)
    except msgspec.DecodeError:
        return {}
    return found if isinstance(found, dict) else {}


KNOWN = SecretValues()


def plant(client: httpx.Client, values: SecretValues = KNOWN) -> None:
    """Let secret values pass where a program may log them: in good and in bad requests, by those who may and who may not."""
    url, made = f"{_NAMESPACE}/secrets", {"metadata": {"name": PLANTED}}

    def value() -> str:
        return values.note_data(f"planted-{secrets.token_hex(16)}", "planted data of a Secret")

    client.request("DELETE", f"{url}/{PLANTED}")
    codes = [
        client.post(url, json=made | {"stringData": {"password": value()}}).status_code,
        client.post(url, json=made | {"stringData": {"password": value()}}).status_code,  # it is there already
        client.patch(f"{url}/{PLANTED}", content=msgspec.json.encode({"stringData": {"password": value()}}),
                     headers={"Content-Type": "application/merge-patch+json"}).status_code,
        client.patch(f"{url}/{PLANTED}", content=f'[{{"op": "test", "path": "/data/password", "value": "{value()}"}}]',
                     headers={"Content-Type": "application/json-patch+json"}).status_code,
        client.put(f"{url}/another", json=made | {"stringData": {"password": value()}}).status_code,
        client.post(url, json={"metadata": {"name": "n"}, "stringData": {"no key": value()}}).status_code,
        client.post(url, json={"metadata": {"name": "n"}, "data": {"key": value()}}).status_code,
        client.post(url, json={"metadata": {"name": "n"}, "stringData": {"key": [value()]}}).status_code,
        client.post(url, content=f'{{"metadata": {{"name": "n"}}, "stringData": {{"key": "{value()}').status_code,
    ]  # fmt: skip
    assert codes == [201, 409, 200, 422, 404, 422, 400, 400, 400], codes
    short, key = values.note_data(f"aB3-{secrets.token_urlsafe(6)}", "planted short value"), _private_key()
    values.note_secret({"metadata": {"name": PLANTED}, "stringData": {"tls.key": key}})
    client.request("DELETE", f"{url}/{PLANTED}-key")
    keys = made | {"metadata": {"name": f"{PLANTED}-key"}, "stringData": {"tls.key": key, "pin": short}}
    assert client.post(url, json=keys).status_code == 201
    assert client.post(url, json=keys | {"type": [key]}).status_code in (400, 422)
    webhook = {"url": f"http://127.0.0.1:9/?token={value()}", "secret": f"whsec_{value()}", "events": value()}
    labels = {"metadata": {"name": f"{PLANTED}-webhook", "labels": {"jobplane.dev/webhook": "true"}}}
    client.request("DELETE", f"{url}/{PLANTED}-webhook")
    assert client.post(url, json=labels | {"stringData": webhook}).status_code == 201
    _plant_tokens(client, values)


@cache
def _private_key() -> str:
    return generate_private_key(SECP256R1()).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def _plant_tokens(client: httpx.Client, values: SecretValues) -> None:
    """Tokens of every kind, used for what they are good for, for what they are not, and wrongly spelt."""
    asked = client.post(f"{_NAMESPACE}/serviceaccounts/default/token", json={"spec": {}})
    joining = client.post(_JOIN_TOKENS, json={"ttlSeconds": 600})
    code = client.post("/ui/codes", json={})
    assert [each.status_code for each in (asked, joining, code)] == [201] * 3, (asked.text, joining.text, code.text)
    signed_in = client.post("/ui/signin", json={"code": code.json()["code"]})
    wrong = values.note_credential(secrets.token_urlsafe(32), "token that nobody knows")
    tokens = [asked.json()["status"]["token"], joining.json()["token"], signed_in.json()["token"], wrong]
    for token in tokens:
        values.note_credential(token, "planted token")
        bearer = {"Authorization": f"Bearer {token}"}
        client.get(f"{_NAMESPACE}/secrets/{PLANTED}", headers=bearer)
        client.post("/apis/agents.jobplane.dev/v1/join", json={"node": "Not A Name", "digest": token}, headers=bearer)
        client.get("/api", headers={"Authorization": f"Basic {token}"})
        review = {"kind": "TokenReview", "apiVersion": "authentication.k8s.io/v1", "spec": {"token": token}}
        client.post("/apis/authentication.k8s.io/v1/tokenreviews", json=review)
    client.delete(f"{_JOIN_TOKENS}/{joining.json()['metadata']['name']}")


class Leak(NamedTuple):
    """A file with a value that should not be there."""

    place: str
    what: str

    def __str__(self) -> str:
        return f"{self.place}: {self.what}"


def find_leaks(
    folder: Path,
    logs: Iterable[Path] = (),
    *,
    dump: Path | None = None,
    encrypted: bool = False,
    values: SecretValues = KNOWN,
) -> list[Leak]:
    """Return where secret values stand in a data folder, in logs, and in what `Cluster.dump` wrote to a folder."""
    places = [path for path in (folder, dump, *logs) if path is not None and path.exists()]
    in_postgres = folder / "postgres"
    found = [
        *_search(places, values.credentials, lambda path: _is_allowed(folder, path)),
        *_search(places, values.data, lambda path: not encrypted and in_postgres in path.parents),
    ]
    return [
        Leak(str(path.relative_to(folder.parent) if folder.parent in path.parents else path), what)
        for path, what in found
    ]


def _is_allowed(folder: Path, path: Path) -> bool:
    return folder in path.parents and any((Path("/") / path.relative_to(folder)).match(f"/{each}") for each in ALLOWED)


def forms(value: str) -> set[bytes]:
    """Return a value as it may stand somewhere: as it is, in base64, and both in hexadecimal, as Postgres prints bytes."""
    plain = value.encode()
    encoded = base64.b64encode(plain)
    return {plain, encoded, plain.hex().encode(), encoded.hex().encode()}


def _search(
    places: list[Path], values: dict[str, str], is_allowed: Callable[[Path], bool]
) -> Iterator[tuple[Path, str]]:
    """One pass over all files, by grep, which looks for all values at once; only files that have one are read here."""
    if not values or not places:
        return
    patterns = b"\n".join({form for value in values for form in forms(value)})
    with tempfile.NamedTemporaryFile() as file:
        file.write(patterns)
        file.flush()
        command = ["grep", "-rlaZF", "-f", file.name, "--", *map(str, places)]
        done = subprocess.run(command, capture_output=True, check=False, env=os.environ | {"LC_ALL": "C"})
        assert done.returncode < 2, done.stderr.decode()
    for name in filter(None, done.stdout.split(b"\0")):
        path = Path(name.decode())
        if not is_allowed(path):
            content = path.read_bytes()
            what = {what for value, what in values.items() if any(form in content for form in forms(value))}
            yield from ((path, each) for each in sorted(what))


def dump_database(dsn: str, folder: Path, *, encrypted: bool, values: SecretValues = KNOWN) -> None:
    """Write every table to a file, uncompressed, and note what rows of Secrets have, which are plain text unless `encrypted`."""
    with ThreadPoolExecutor(1) as thread:  # a process that drives a browser has a loop that runs
        bodies = thread.submit(lambda: asyncio.run(_dump(dsn, folder, encrypted=encrypted))).result()
    for body in bodies:
        values.note_secret(msgspec.json.decode(body))


async def _dump(dsn: str, folder: Path, *, encrypted: bool) -> list[bytes]:
    """Return the bodies of Secrets that are not in what is written."""
    connection = await asyncpg.connect(dsn)
    try:
        for (table,) in await connection.fetch(_TABLES):
            plain = table == "history" and not encrypted
            rows = f"select * from {table}" + (" where kind <> 'secrets'" if plain else "")
            await connection.copy_from_query(rows, output=folder / table, format="binary")
        return [] if encrypted else [body for (body,) in await connection.fetch(_SECRETS)]
    finally:
        await connection.close()


def dsn_of(folder: Path) -> str:
    """Return the URL of the Postgres that `jobplane up` runs on a data folder."""
    return Postgres(folder / "postgres").dsn

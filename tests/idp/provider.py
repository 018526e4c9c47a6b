"""A real identity provider on this machine: oidc-provider from npm, in a Node.js of its own, and a browser that signs in."""

import base64
import hashlib
import json
import re
import secrets
import ssl
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

import httpx
from joserfc.jwk import ECKey, RSAKey

from app.api.auth import certificates
from tests.e2e.cluster import free_port
from tests.e2e.environments import node_with

ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).with_name("provider.mjs")
CLIENT, OTHER_CLIENT = "jobplane", "another"
USERS: Mapping[str, Any] = {
    "ada": {"email": "ada@example.com", "email_verified": True, "groups": ["vision", "system:masters"]},
    "bob": {"email": "bob@example.com", "email_verified": False, "groups": []},
    "system:admin": {"groups": ["vision"]},
}
SCOPES = "openid email groups offline_access"
REDIRECT = "http://127.0.0.1:9/callback"


def signing_key(algorithm: str = "ES256") -> dict[str, Any]:
    """A private key with an id, as the provider has it."""
    key = ECKey.generate_key("P-256") if algorithm == "ES256" else RSAKey.generate_key(2048)
    return {**key.as_dict(private=True), "kid": secrets.token_hex(4), "use": "sig", "alg": algorithm}


class IdentityProvider:
    """As a context manager it runs. `rotate` and `stop` change it under its users."""

    def __init__(self, folder: Path, algorithm: str = "ES256", seconds: int = 3600) -> None:
        self.algorithm, self.seconds = algorithm, seconds
        self._port = free_port()
        self.issuer = f"https://127.0.0.1:{self._port}"
        self._tls = certificates.ensure(folder / "idp", ["127.0.0.1"])
        self.ca_file = self._tls.ca
        self.keys = [signing_key(algorithm)]
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        node, folder = node_with("oidc-provider", "oidc-provider@9.13.3")
        script = folder / SCRIPT.name  # imports are looked for beside the script
        temporary = script.with_suffix(f".{secrets.token_hex(4)}")
        temporary.write_text(SCRIPT.read_text())
        temporary.replace(script)
        configuration = {
            "issuer": self.issuer,
            "port": self._port,
            "cert": str(self._tls.cert),
            "key": str(self._tls.key),
            "jwks": {"keys": self.keys},
            "algorithm": self.algorithm,
            "clients": [CLIENT, OTHER_CLIENT],
            "users": USERS,
            "seconds": self.seconds,
        }
        command = [str(node), str(script), json.dumps(configuration)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout
        while (line := self._process.stdout.readline()) != "listening\n":
            assert line, "the identity provider ended"

    def stop(self) -> None:
        if self._process is None:
            return
        self._process.kill()
        self._process.communicate()
        self._process = None

    def rotate(self) -> None:
        """Sign with a new key; the old one is withdrawn."""
        self.stop()
        self.keys = [signing_key(self.algorithm)]
        self.start()

    def client(self) -> httpx.Client:
        """A browser, with cookies."""
        verify = ssl.create_default_context(cafile=str(self.ca_file))
        return httpx.Client(base_url=self.issuer, verify=verify, trust_env=False, timeout=60)

    def token(self, user: str = "ada", client_id: str = CLIENT) -> str:
        """An ID token by the authorization code flow."""
        return str(self.tokens(user, client_id)["id_token"])

    def tokens(self, user: str = "ada", client_id: str = CLIENT) -> dict[str, Any]:
        verifier = secrets.token_urlsafe(48)
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")
        asked = {"client_id": client_id, "response_type": "code", "scope": SCOPES, "redirect_uri": REDIRECT}
        asked |= {"code_challenge": challenge, "code_challenge_method": "S256", "login_hint": user, "prompt": "consent"}
        with self.client() as browser:
            place = sign_in(browser, str(browser.build_request("GET", "/auth", params=asked).url))
            code = parse_qs(urlsplit(place).query)["code"][0]
            body = {"grant_type": "authorization_code", "code": code, "redirect_uri": REDIRECT, "client_id": client_id}
            answer = browser.post("/token", data=body | {"code_verifier": verifier})
            assert answer.status_code == 200, answer.text
            found: dict[str, Any] = answer.json()
            return found


def sign_in(browser: httpx.Client, url: str) -> str:
    """Follow the provider's pages; where they lead to in the end, outside of it."""
    host = urlsplit(url).netloc
    while urlsplit(url).netloc == host:
        answer = browser.get(url)
        assert answer.is_redirect, f"{url}: {answer.status_code} {answer.text}"
        url = str(answer.next_request.url) if answer.next_request else ""
    return url


def confirm_device(browser: httpx.Client, url: str) -> None:
    """What a person does with the address that a device shows: confirm, sign in, consent."""
    page = browser.get(url)
    fields = dict(re.findall(r'name="(\w+)" value="([^"]+)"', page.text))
    answer = browser.post("/device", data=fields | {"confirm": "yes"})
    while answer.is_redirect and answer.next_request:
        answer = browser.send(answer.next_request)
    assert answer.status_code == 200, answer.text


_BROWSER = f"""#!{sys.executable}
import ssl, sys
sys.path.insert(0, {str(ROOT)!r})
import httpx
from tests.idp.provider import sign_in
ca, log, url = sys.argv[1:]
with httpx.Client(verify=ssl.create_default_context(cafile=ca), trust_env=False, timeout=60) as browser:
    place = sign_in(browser, url)
    httpx.get(place, trust_env=False).raise_for_status()
open(log, "a").write("signed in\\n")
"""


def browser_command(provider: IdentityProvider, folder: Path) -> str:
    """What the variable BROWSER has to be for programs that open one; it counts its lines in `browser.log`."""
    browser = folder / "browser"
    browser.write_text(_BROWSER)
    browser.chmod(0o755)
    return f"{browser} {provider.ca_file} {folder / 'browser.log'} %s"

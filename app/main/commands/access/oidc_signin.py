"""Sign-in at an OIDC provider: authorization code with PKCE on a loopback port, device code, and refresh. For `login`.

Every address must be https, and every ID token comes from the provider's token endpoint over TLS, which proves it; the API
checks its signature. Errors are CommandErrors of one line.
"""

import base64
import hashlib
import secrets
import ssl
import sys
import threading
import time
import webbrowser
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx
import msgspec

from app.main.cli_errors import CommandError

PATIENCE_SECONDS = 300.0  # for the user to sign in
_DEVICE = "urn:ietf:params:oauth:grant-type:device_code"
_SIGNED_IN = (
    b"<!doctype html><title>Signed in</title><p>You are signed in. Close this page, and go back to the terminal.</p>"
)


class OidcClient(NamedTuple):
    """The provider, and how the command is known there. `ca_file`: authority to trust; none: the machine's."""

    issuer: str
    client_id: str
    client_secret: str = ""
    scopes: tuple[str, ...] = ()
    ca_file: Path | None = None


class IdToken(msgspec.Struct):
    """An ID token, when it ends, in seconds since 1970, and what it is renewed with; empty if it cannot be."""

    token: str
    expires_at: float
    refresh_token: str = ""


class _Claims(msgspec.Struct):
    iss: str = ""
    aud: str | list[str] = ""
    exp: float = 0
    nonce: str = ""


class Session:
    """Requests to one provider. Close it after use."""

    def __init__(self, client: OidcClient) -> None:
        self.client = client
        tls = ssl.create_default_context(cafile=str(client.ca_file) if client.ca_file else None)
        self._http = httpx.Client(verify=tls, timeout=30)
        self._endpoints: Mapping[str, Any] = {}

    def close(self) -> None:
        self._http.close()

    def endpoint(self, name: str) -> str:
        """Return an address that the provider has published; empty if it has none."""
        if not self._endpoints:
            found = self._answer("GET", f"{self.client.issuer.rstrip('/')}/.well-known/openid-configuration")
            if found.get("issuer") != self.client.issuer:
                raise CommandError(
                    f"{self.client.issuer} calls itself {found.get('issuer')}: pass that --oidc-issuer-url"
                )
            self._endpoints = found
        url = str(self._endpoints.get(name, ""))
        if url and urlsplit(url).scheme != "https":
            raise CommandError(f"{self.client.issuer}: its {name} is no https:// URL")
        return url

    def post(self, url: str, **fields: str) -> dict[str, Any]:
        """POST a form as this client, and return the answer, which may be an `error`."""
        secret = {"client_secret": self.client.client_secret} if self.client.client_secret else {}
        return self._answer("POST", url, {"client_id": self.client.client_id, **secret, **fields})

    def _answer(self, method: str, url: str, form: Mapping[str, str] | None = None) -> dict[str, Any]:
        try:
            answer = self._http.request(method, url, data=form)
            found = msgspec.json.decode(answer.content, type=dict[str, Any])
        except httpx.HTTPError as error:
            raise CommandError(
                f"cannot reach the identity provider at {url}: {error}: check --oidc-issuer-url"
            ) from error
        except msgspec.MsgspecError:
            raise CommandError(
                f"{url} is no OIDC provider's (HTTP {answer.status_code}): check --oidc-issuer-url"
            ) from None
        return found


def refresh(session: Session, known: IdToken) -> IdToken | None:
    """Renew a token without its user; None if the provider wants a new sign-in."""
    if not known.refresh_token:
        return None
    url = session.endpoint("token_endpoint")
    answer = session.post(url, grant_type="refresh_token", refresh_token=known.refresh_token)
    if "id_token" not in answer:
        return None
    return _read(session.client, {"refresh_token": known.refresh_token, **answer})


def sign_in_by_browser(session: Session, port: int, show: Callable[[str], None]) -> IdToken:
    """Authorization code flow with PKCE: the provider sends the browser back to a port of this machine's loopback address."""
    verifier, state, nonce = (secrets.token_urlsafe(48) for _ in range(3))
    challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")
    with _Callback(port, state) as callback:
        redirect = f"http://127.0.0.1:{callback.server_port}/callback"
        asked = {
            "response_type": "code",
            "client_id": session.client.client_id,
            "redirect_uri": redirect,
            "nonce": nonce,
        }
        asked |= {"scope": " ".join(session.client.scopes), "state": state, "prompt": "consent"}
        asked |= {"code_challenge": challenge, "code_challenge_method": "S256"}
        show(f"{session.endpoint('authorization_endpoint')}?{urlencode(asked)}")
        code = callback.wait()
    answer = session.post(
        session.endpoint("token_endpoint"),
        grant_type="authorization_code", code=code, redirect_uri=redirect, code_verifier=verifier,
    )  # fmt: skip
    return _read(session.client, answer, nonce)


def open_browser(url: str) -> None:
    """Show an address to the user: in a browser if there is one, and on stderr."""
    sys.stderr.write(f"Open this address to sign in:\n{url}\n")
    sys.stderr.flush()
    # A browser in a terminal runs until it is left, and must be answered meanwhile.
    threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()


class _Callback(HTTPServer):
    """Waits on loopback for the one request that the provider's redirect makes."""

    def __init__(self, port: int, state: str) -> None:
        try:
            super().__init__(("127.0.0.1", port), _CallbackHandler)
        except OSError as error:
            raise CommandError(
                f"cannot listen on port {port} of 127.0.0.1 ({error.strerror}): pass another --listen-port"
            ) from error
        self.state, self.code, self.error = state, "", ""

    def wait(self) -> str:
        ends = time.monotonic() + PATIENCE_SECONDS
        while not self.code and not self.error:
            self.timeout = ends - time.monotonic()
            if self.timeout <= 0:
                raise CommandError(f"nobody signed in within {PATIENCE_SECONDS:.0f} s: run the command again")
            self.handle_request()
        if self.error:
            raise CommandError(f"the identity provider refuses the sign-in: {self.error}")
        return self.code


class _CallbackHandler(BaseHTTPRequestHandler):
    timeout = 5.0  # for the bytes of a request: other programs may connect, too
    server: _Callback

    def do_GET(self) -> None:
        place = urlsplit(self.path)
        given = {name: values[0] for name, values in parse_qs(place.query).items()}
        if place.path != "/callback" or not secrets.compare_digest(given.get("state", ""), self.server.state):
            self.send_error(404)
            return
        self.server.code = given.get("code", "")
        self.server.error = given.get("error_description", given.get("error", "")) or (
            "" if self.server.code else "no code"
        )
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(_SIGNED_IN)))
        self.end_headers()
        self.wfile.write(_SIGNED_IN)

    def log_message(self, *_: object) -> None:
        """Log nothing: the address of the request has the code."""


def sign_in_by_device(
    session: Session, show: Callable[[str], None], sleep: Callable[[float], None] = time.sleep
) -> IdToken:
    """Device code flow: the user opens an address on any machine. CommandError if the provider has no such flow."""
    url = session.endpoint("device_authorization_endpoint")
    if not url:
        raise CommandError(f"{session.client.issuer} has no device sign-in: leave out --device")
    found = session.post(url, scope=" ".join(session.client.scopes))
    _refuse_error(found)
    place = found.get("verification_uri_complete") or found.get("verification_uri", "")
    show(f"Open this address on any machine, and confirm the code {found.get('user_code')}:\n{place}")
    pause = float(found.get("interval", 5))
    ends = time.monotonic() + float(found.get("expires_in", PATIENCE_SECONDS))
    while time.monotonic() < ends:
        sleep(pause)
        answer = session.post(
            session.endpoint("token_endpoint"), grant_type=_DEVICE, device_code=str(found["device_code"])
        )
        match answer.get("error"):
            case "authorization_pending":
                continue
            case "slow_down":
                pause += 5
            case _:
                return _read(session.client, answer)
    raise CommandError("nobody signed in before the code expired: run the command again")


def _refuse_error(answer: Mapping[str, Any]) -> None:
    if error := answer.get("error"):
        raise CommandError(f"the identity provider refuses the sign-in: {answer.get('error_description') or error}")


def _read(client: OidcClient, answer: Mapping[str, Any], nonce: str = "") -> IdToken:
    """Return the ID token of an answer, if it is this client's and of this sign-in."""
    _refuse_error(answer)
    token = str(answer.get("id_token", ""))
    try:
        part = token.split(".")[1]
        claims = msgspec.json.decode(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)), type=_Claims)
    except (IndexError, ValueError, msgspec.MsgspecError):
        raise CommandError("the identity provider gave no ID token: it needs the scope openid") from None
    audiences = [claims.aud] if isinstance(claims.aud, str) else claims.aud
    if claims.iss != client.issuer or client.client_id not in audiences or (nonce and claims.nonce != nonce):
        raise CommandError("the identity provider gave a token that is not of this sign-in: run the command again")
    return IdToken(token, claims.exp, str(answer.get("refresh_token", "")))

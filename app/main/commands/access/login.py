"""`jobplane login`: sign in at an OIDC provider, and print the ID token as kubectl's credential plugins do. Added by `cli`.

Tokens are kept in DATA_DIR/login, one file for each provider and client, readable by their owner only. They are renewed
without the user for as long as the provider allows it. Of several that run at once, one signs in and the others wait.
"""

import fcntl
import hashlib
import json
import os
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from app.main.cli_errors import CommandError
from app.main.cli_options import DataDir, option, read_settings

if TYPE_CHECKING:
    from app.main.commands.access.oidc_signin import IdToken, OidcClient, Session

LEFT_SECONDS = 30.0  # that a kept token must still be good for
_ALWAYS = ("openid", "offline_access")


def login(
    oidc_issuer_url: Annotated[str | None, option("oidc_issuer_url")] = None,
    oidc_client_id: Annotated[str | None, option("oidc_client_id")] = None,
    oidc_ca_file: Annotated[Path | None, option("oidc_ca_file")] = None,
    data_dir: DataDir = None,
    client_secret_file: Annotated[
        Path | None, typer.Option(help="File with the client's secret, if the provider gave it one. [default: none]")
    ] = None,
    scope: Annotated[
        list[str] | None, typer.Option(help="Further scope, such as email or groups; can be repeated. [default: none]")
    ] = None,
    device: Annotated[
        bool, typer.Option("--device", help="Sign in on another machine, by a code, as there is no browser here.")
    ] = False,
    listen_port: Annotated[
        int,
        typer.Option(help="Port of 127.0.0.1 to which the provider sends the browser back; 0: any.", min=0, max=65535),
    ] = 0,
) -> None:
    """Sign in at an OIDC provider and print an ExecCredential with the token. kubectl and jobplane run it by a kubeconfig.

    \b
    kubectl config set-credentials oidc --exec-api-version=client.authentication.k8s.io/v1 \\
      --exec-interactive-mode=IfAvailable --exec-command=jobplane --exec-arg=login \\
      --exec-arg=--oidc-issuer-url=https://id.example.com --exec-arg=--oidc-client-id=jobplane
    """
    from app.main.commands.access.oidc_signin import OidcClient

    made = read_settings(
        oidc_issuer_url=oidc_issuer_url,
        oidc_client_id=oidc_client_id,
        oidc_ca_file=oidc_ca_file,
        data_dir=data_dir,
        log_level="warning",
    )
    if not made.oidc_issuer_url:
        raise CommandError("pass --oidc-issuer-url and --oidc-client-id, as the API has them")
    client = OidcClient(
        made.oidc_issuer_url,
        made.oidc_client_id,
        client_secret_file.read_text().strip() if client_secret_file else "",
        tuple(dict.fromkeys((*_ALWAYS, *(scope or ())))),
        made.oidc_ca_file,
    )
    found = _find_token(made.data_dir / "login", client, device=device, port=listen_port)
    end = datetime.fromtimestamp(found.expires_at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    status = {"token": found.token, "expirationTimestamp": end}
    typer.echo(json.dumps({"apiVersion": _asked_version(), "kind": "ExecCredential", "status": status}))


def _asked_version() -> str:
    """The version that the caller speaks, as it says in its environment."""
    try:
        return str(json.loads(os.environ["KUBERNETES_EXEC_INFO"])["apiVersion"])
    except (KeyError, ValueError, TypeError):
        return "client.authentication.k8s.io/v1"


def _find_token(folder: Path, client: "OidcClient", *, device: bool, port: int) -> "IdToken":
    """Return the kept token, a renewed one, or one of a new sign-in."""
    from app.main.commands.access.oidc_signin import Session

    name = hashlib.sha256(json.dumps([client.issuer, client.client_id, client.scopes]).encode()).hexdigest()[:32]
    with _locked(folder, name) as path:
        kept = _read(path)
        if kept is not None and kept.expires_at > time.time() + LEFT_SECONDS:
            return kept
        with closing(Session(client)) as session:
            found = _renewed(session, kept) or _signed_in(session, device=device, port=port)
        _write(path, found)
        return found


def _renewed(session: "Session", kept: "IdToken | None") -> "IdToken | None":
    from app.main.commands.access.oidc_signin import refresh

    return refresh(session, kept) if kept is not None else None


def _signed_in(session: "Session", *, device: bool, port: int) -> "IdToken":
    from app.main.commands.access.oidc_signin import open_browser, sign_in_by_browser, sign_in_by_device

    if device:
        return sign_in_by_device(session, lambda text: typer.echo(text, err=True))
    return sign_in_by_browser(session, port, open_browser)


@contextmanager
def _locked(folder: Path, name: str) -> Iterator[Path]:
    """Yield the file of a client, while no other command uses it."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (folder / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder / f"{name}.json"


def _read(path: Path) -> "IdToken | None":
    """Read a kept token; None if there is none, or what is there is none."""
    from app.main.commands.access.oidc_signin import IdToken

    try:
        return msgspec.json.decode(path.read_bytes(), type=IdToken)
    except (FileNotFoundError, msgspec.MsgspecError):
        return None


def _write(path: Path, token: "IdToken") -> None:
    from app.api.auth.certificates import write_private

    write_private(path, msgspec.json.encode(token))

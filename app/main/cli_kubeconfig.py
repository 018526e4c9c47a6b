"""`jobplane kubeconfig`: print a kubeconfig for kubectl and client libraries. Added by `app.main.cli`."""

import asyncio
from datetime import datetime
from typing import Annotated

import typer

from app.main.cli_database import open_database
from app.main.cli_errors import CommandError
from app.main.cli_nodes import span
from app.main.cli_options import CaFile, DatabaseUrl, DataDir, Server, read_settings
from app.main.cli_process import now
from app.settings import Settings


def kubeconfig(
    data_dir: DataDir = None,
    server: Server = None,
    database_url: DatabaseUrl = None,
    ca_file: CaFile = None,
    user: Annotated[str | None, typer.Option(help="User name of the token's holder. [default: admin]")] = None,
    group: Annotated[
        list[str] | None,
        typer.Option(help="Group of the holder; can be repeated. [default: system:masters, if there is no --user]"),
    ] = None,
    duration: Annotated[
        str | None, typer.Option(help="Lifetime of the token, such as 30d. [default: unlimited]")
    ] = None,
) -> None:
    """Print the kubeconfig of `jobplane up`. With --server, print one with a new token; `jobplane token revoke` ends it.

    For an administrator: jobplane kubeconfig --server https://api:6443 --ca-file ca.crt > kubeconfig
    """
    made = read_settings(
        data_dir=data_dir,
        server=server,
        database_url=database_url,
        ca_file=ca_file,
        log_level="warning",
    )
    if made.server:
        groups = tuple(group or ([] if user else ["system:masters"]))
        typer.echo(
            _kubeconfig_with_token(made, (user or "admin", groups), now() + span(duration) if duration else None),
            nl=False,
        )
        return
    path = made.data_dir / "kubeconfig"
    if not path.exists():
        why = (
            "start `jobplane up` first, or pass its --data-dir; for a `jobplane api`, pass --server and --database-url"
        )
        raise CommandError(f"{path} does not exist: {why}")
    typer.echo(path.read_text(), nl=False)


def _kubeconfig_with_token(made: Settings, holder: tuple[str, tuple[str, ...]], expires_at: datetime | None) -> str:
    from app.api.auth.certificates import kubeconfig as written

    ca_file = made.ca_file or made.data_dir / "tls" / "ca.crt"
    if not ca_file.exists():
        why = "copy DATA_DIR/tls/ca.crt from a machine that runs `jobplane api`, and pass it as --ca-file"
        raise CommandError(f"{ca_file} does not exist: {why}")
    return written(made.server, ca_file.read_text(), asyncio.run(_issue_token(made, *holder, expires_at)))


async def _issue_token(made: Settings, user: str, groups: tuple[str, ...], expires_at: datetime | None) -> str:
    from app.api.auth.authenticator import User
    from app.api.auth.tokens import issue
    from app.registry.verbs.objects import Registry

    async with open_database(made) as store:
        return await issue(Registry(store, now), User(name=user, groups=groups), expires_at)

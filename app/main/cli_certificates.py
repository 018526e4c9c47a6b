"""`jobplane certificates`: create the API's certificate, and rotate its CA in two steps. Added by `app.main.cli`."""

from typing import Annotated

import typer

from app.main.cli_options import DataDir, TlsSan, read_settings
from app.main.cli_process import now

certificates = typer.Typer(
    no_args_is_help=True, help="Manage the certificate authority (CA) that signs the API's certificate."
)

_BEGUN = """{ca} now holds two CA certificates, the current one and the next one; the next one signs nothing yet.
The agent and the controllers of `jobplane up` and {kubeconfig} follow within seconds, joined agents within ten minutes.
Before you run this again with --finish:
  - copy {ca} to agents on other machines that use a --ca-file, and to `jobplane controllers` there; restart these;
  - give users a new kubeconfig;
  - copy ca.crt, ca.key and ca.next.pem to DATA_DIR/tls of every other machine that runs `jobplane api`."""
_FINISHED = """{ca} now holds the new CA certificate only; a running API uses it within seconds.
Join commands have a new --ca-hash. Run this on every other machine that runs `jobplane api`, too."""


@certificates.command()
def create(data_dir: DataDir = None, tls_san: TlsSan = None) -> None:
    """Create DATA_DIR/tls, with a CA and the API's certificate, unless it is there; print the path of ca.crt.

    `jobplane api` does so by itself. Use this if others need ca.crt before it starts.
    """
    from app.api.auth.certificates import ensure

    made = read_settings(data_dir=data_dir, tls_san=tls_san, log_level="warning")
    typer.echo(ensure(made.data_dir / "tls", made.certified_hosts).ca)


@certificates.command()
def rotate(
    data_dir: DataDir = None,
    finish: Annotated[bool, typer.Option("--finish", help="Second step: sign with the new CA only.")] = False,
) -> None:
    """Create a new CA. Clients have to trust both until --finish; prints what to do in between."""
    from app.api.auth.certificates import RotationError, begin_rotation, finish_rotation

    made = read_settings(data_dir=data_dir, log_level="warning")
    folder = made.data_dir / "tls"
    try:
        if finish:
            finish_rotation(folder)
        else:
            begin_rotation(folder, now=now())
    except (RotationError, OSError) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None
    text = _FINISHED if finish else _BEGUN
    typer.echo(text.format(ca=folder / "ca.crt", kubeconfig=made.data_dir / "kubeconfig"))

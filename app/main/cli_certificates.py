"""`jobplane certificates rotate`: a new CA for the API's certificate, in two steps. Added by `app.main.cli`."""

from typing import Annotated

import typer

from app.main.cli_options import DataDir, read_settings
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


@certificates.callback()
def _group() -> None:
    """Makes typer treat it as a group, though it has one command."""


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

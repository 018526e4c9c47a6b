"""`jobplane certificates rotate`: another authority for the API's certificate, in two steps. Added by `app.main.cli`."""

from typing import Annotated

import typer

from app.main.cli_options import DataDir, settings
from app.main.cli_process import now

certificates = typer.Typer(no_args_is_help=True, help="The authority that signs the API's certificate.")

_BEGUN = """{ca} now holds two authorities, the present one and the next; nothing is signed by the next yet.
`up`'s own agent, its controllers and {kubeconfig} follow within seconds, agents that have joined within ten minutes.
Before you run this again with --finish:
  - copy {ca} to agents with a --ca-file elsewhere, and to `jobplane controllers` on other machines; restart those;
  - give people their kubeconfig anew;
  - copy ca.crt, ca.key and ca.next.pem to DATA_DIR/tls of every other machine that runs `jobplane api`."""
_FINISHED = """{ca} holds the new authority alone; a running API shows a certificate of it within seconds.
On every other machine that runs `jobplane api`, run this, too. The --ca-hash of join commands is another one from now on."""


@certificates.callback()
def _group() -> None:
    """A group also with one command."""


@certificates.command()
def rotate(
    data_dir: DataDir = None,
    finish: Annotated[bool, typer.Option("--finish", help="The second step: sign with the next authority.")] = False,
) -> None:
    """Make another authority; clients are to trust both until --finish. Says what to do in between."""
    from app.api.auth.certificates import RotationError, begin_rotation, finish_rotation

    made = settings(data_dir=data_dir, log_level="warning")
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

"""`jobplane node approve` and `reset`: let a node in that waits, revoke the credential of a node. Added by `app.main.cli`."""

from datetime import timedelta
from typing import Annotated

import typer

from app.machinery.durations import parse_span
from app.main.cli_options import call_api, with_api_options
from app.settings import Settings

nodes = typer.Typer(no_args_is_help=True, help="Manage nodes that have joined.")


def span(text: str, option: str = "--duration") -> timedelta:
    """Parse a duration such as 8h, 1d12h or 90m. Raises BadParameter for `option`."""
    found = parse_span(text)
    if found is None:
        raise typer.BadParameter(f"{text} is not a duration such as 8h, 90m or 1d12h", param_hint=option)
    return found


@nodes.command()
@with_api_options
def approve(
    made: Settings,
    name: Annotated[str, typer.Argument(help="Name of the node, as its agent and `jobplane token list` have it.")],
) -> None:
    """Let a node in that waits since it joined with a token of `jobplane token create --approve`."""
    from app.client.protocol import CREDENTIALS

    call_api(made, lambda api: api.request("POST", f"{CREDENTIALS}/{name}/approve", {}))
    typer.echo(f"node {name} is approved")


@nodes.command()
@with_api_options
def reset(
    made: Settings,
    name: Annotated[str, typer.Argument(help="Name of the node.")],
) -> None:
    """Revoke the credential of a node, so that another machine can join as that node. Its agent stops its pods."""
    from app.client.protocol import CREDENTIALS

    call_api(made, lambda api: api.request("DELETE", f"{CREDENTIALS}/{name}"))
    typer.echo(f"credential of node {name} is revoked; join it again by `jobplane token create`")

"""`jobplane node reset`, for machines that have joined. Added to the command line by `app.main.cli`."""

import re
from datetime import timedelta
from typing import Annotated

import typer

from app.main.cli_options import calling, of_an_api
from app.settings import Settings

_BASE = "/apis/agents.jobplane.dev/v1"
nodes = typer.Typer(no_args_is_help=True, help="Machines that have joined.")


def span(text: str, option: str = "--duration") -> timedelta:
    """8h, 1d12h, 90m."""
    units = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
    parts = re.findall(r"(\d{1,6})([smhd])", text)
    if not parts or "".join(map("".join, parts)) != text:
        raise typer.BadParameter(f"{text} is no duration such as 8h, 90m or 1d12h", param_hint=option)
    return sum((timedelta(**{units[unit]: int(count)}) for count, unit in parts), timedelta())


@nodes.command()
@of_an_api
def reset(
    made: Settings,
    name: Annotated[str, typer.Argument(help="The node's name.")],
) -> None:
    """Revoke a node's credential, so that another machine may join as that node. Its agent stops its pods."""
    calling(made, lambda api: api.request("DELETE", f"{_BASE}/credentials/{name}"))
    typer.echo(f"node {name} may be joined anew")

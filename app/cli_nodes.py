"""`jobplane token create|list|revoke` and `jobplane node reset`: which machines may join. Added by `app.cli`."""

import re
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli_options import calling, of_an_api, place
from app.settings import Settings

if TYPE_CHECKING:
    from app.client.api import Api

_BASE = "/apis/agents.jobplane.dev/v1"
nodes = typer.Typer(no_args_is_help=True, help="Machines that have joined.")


def span(text: str, option: str = "--duration") -> timedelta:
    """8h, 1d12h, 90m."""
    units = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
    parts = re.findall(r"(\d{1,6})([smhd])", text)
    if not parts or "".join(map("".join, parts)) != text:
        raise typer.BadParameter(f"{text} is no duration such as 8h, 90m or 1d12h", param_hint=option)
    return sum((timedelta(**{units[unit]: int(count)}) for count, unit in parts), timedelta())


@of_an_api
def create(
    made: Settings,
    ttl: Annotated[str, typer.Option(help="How long machines may join by it, such as 90m, 24h or 30d.")] = "24h",
) -> None:
    """Make a token by which machines join, and print the command that does it. Any number may use it until it ends."""
    body = {"ttlSeconds": int(span(ttl, "--ttl").total_seconds())}

    async def work(api: "Api") -> tuple[Any, str]:
        return await api.request_json("POST", f"{_BASE}/jointokens", body), await _hash(api)

    token, ca_hash = calling(made, work)
    trust = f" --ca-hash {ca_hash}" if ca_hash else ""
    typer.echo(f"jobplane agent --server {place(made).server} --join-token {token['token']}{trust}")


async def _hash(api: "Api") -> str:
    """Of the authority, as this machine knows it to be the right one; nothing if TLS is somebody else's."""
    from app.client.authority import PATH, hash_of
    from app.kinds.errors import ApiError

    try:
        return hash_of((await api.request("GET", PATH)).decode())
    except ApiError as error:
        if error.code != 404:
            raise
        return ""


@of_an_api
def listed(made: Settings) -> None:
    """The join tokens that are good; not their secrets, which nobody can read again."""
    found = calling(made, lambda api: api.request_json("GET", f"{_BASE}/jointokens"))
    typer.echo(f"{'TOKEN':<8}{'CREATED':<22}EXPIRES")
    for each in found["items"]:
        meta = each["metadata"]
        typer.echo(f"{meta['name']:<8}{meta['creationTimestamp']:<22}{each.get('expiresAt', 'never')}")


@of_an_api
def revoke(
    made: Settings,
    token: Annotated[str, typer.Argument(help="The token, or what stands before its dot.")],
) -> None:
    """End a join token. Nodes that have joined by it stay."""
    name = token.partition(".")[0]
    calling(made, lambda api: api.request("DELETE", f"{_BASE}/jointokens/{name}"))
    typer.echo(f"{name} is revoked")


@nodes.command()
@of_an_api
def reset(
    made: Settings,
    name: Annotated[str, typer.Argument(help="The node's name.")],
) -> None:
    """Revoke a node's credential, so that another machine may join as that node. Its agent stops its pods."""
    calling(made, lambda api: api.request("DELETE", f"{_BASE}/credentials/{name}"))
    typer.echo(f"node {name} may be joined anew")

"""`jobplane token create|list|revoke|rotate`: manage tokens. Added by `app.main.cli`.

Lists and revokes tokens through the API or, with --database-url and without --server, in the database itself.
"""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any, TypeVar
from urllib.parse import urlsplit

import msgspec
import typer
from pydantic import SecretStr

from app.main.cli_database import open_database
from app.main.cli_nodes import span
from app.main.cli_options import ApiAccess, DatabaseUrl, DataDir, api_access, call_api, read_settings, with_api_options
from app.main.cli_process import now
from app.settings import LOOPBACK, Settings

if TYPE_CHECKING:
    from app.client.api import Api
    from app.registry.verbs.objects import Registry

T = TypeVar("T")
TAKEN_SECONDS = 20.0
_COLUMNS = ("ID", "TYPE", "HOLDER", "GROUPS", "NODES", "CREATED", "EXPIRES", "USES", "STATE", "FILE")


@with_api_options
def create(
    made: Settings,
    ttl: Annotated[
        str, typer.Option("--ttl", "--duration", help="Lifetime of the join token, such as 90m, 24h or 30d.")
    ] = "24h",
    uses: Annotated[int, typer.Option(help="Number of machines that can join with the token.")] = 1,
    node_duration: Annotated[
        str,
        typer.Option(
            help="Lifetime of the credentials of these nodes, which agents renew before its end; 0: unlimited."
        ),
    ] = "30d",
    approve: Annotated[
        bool, typer.Option("--approve", help="Let a machine in only after `jobplane node approve NAME`.")
    ] = False,
) -> None:
    """Create a join token, and print the command with which a machine joins."""
    life = timedelta() if node_duration == "0" else span(node_duration, "--node-duration")
    body = {"ttlSeconds": int(span(ttl, "--ttl").total_seconds()), "uses": uses, "approve": approve}
    body["nodeTtlSeconds"] = int(life.total_seconds())

    async def work(api: "Api") -> tuple[Any, str]:
        from app.client.protocol import JOIN_TOKENS

        return await api.request_json("POST", JOIN_TOKENS, body), await _hash(api)

    token, ca_hash = call_api(made, work)
    trust = f" --ca-hash {ca_hash}" if ca_hash else ""
    server = api_access(made).server
    typer.echo(f"jobplane agent --server {server} --join-token {token['token']}{trust}")
    if (urlsplit(server).hostname or "") in LOOPBACK:
        typer.echo("on other machines, pass this machine's address in --server", err=True)


async def _hash(api: "Api") -> str:
    """Fetch the hash of the API's CA certificate; empty if a proxy serves TLS."""
    from app.client.ca_pin import hash_of
    from app.client.protocol import CA
    from app.machinery.errors import ApiError

    try:
        return hash_of((await api.request("GET", CA)).decode())
    except ApiError as error:
        if error.code != 404:
            raise
        return ""


@with_api_options
def listed(made: Settings, database_url: DatabaseUrl = None) -> None:
    """List all tokens, of every type, oldest first. Their secrets cannot be shown again."""
    from app.api.auth.token_list import page
    from app.client.protocol import TOKENS

    async def by_api(api: "Api") -> list[dict[str, Any]]:
        return await _all(lambda place: api.request_json("GET", TOKENS, params={"continue": place}))

    async def by_database(registry: "Registry") -> list[dict[str, Any]]:
        async def read(place: str) -> dict[str, Any]:
            found: dict[str, Any] = msgspec.to_builtins(await page(registry, place))
            return found

        return await _all(read)

    found = _either(made, database_url, by_api, by_database)
    rows: list[tuple[str, ...]] = [_COLUMNS, *map(_row, found)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
    for row in rows:
        typer.echo("   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


async def _all(page: Callable[[str], Awaitable[dict[str, Any]]]) -> list[dict[str, Any]]:
    found = await page("")
    items: list[dict[str, Any]] = found["items"]
    while continue_ := found["metadata"].get("continue"):
        found = await page(continue_)
        items += found["items"]
    return items


def _row(token: dict[str, Any]) -> tuple[str, ...]:
    meta = token["metadata"]
    return (
        meta["name"],
        token["type"],
        token["user"],
        ",".join(token.get("groups", ())) or "-",
        ",".join(token.get("nodes", ())) or "-",
        meta["creationTimestamp"],
        token.get("expiresAt", "never"),
        str(token.get("uses", "-")),
        token["state"],
        token.get("file", "-"),
    )


@with_api_options
def revoke(
    made: Settings,
    token: Annotated[
        str, typer.Argument(metavar="ID", help="ID of the token, as in `jobplane token list`, or a join token.")
    ],
    database_url: DatabaseUrl = None,
) -> None:
    """Revoke a token of any type, within seconds. Nodes that joined with a join token stay joined."""
    from app.api.auth.token_list import revoke as end
    from app.client.protocol import TOKENS

    id_ = token.partition(".")[0]
    _either(
        made,
        database_url,
        lambda api: api.request("DELETE", f"{TOKENS}/{id_}"),
        lambda registry: end(registry, id_),
    )
    typer.echo(f"{id_} is revoked")


def _either(
    made: Settings,
    database_url: str | None,
    by_api: Callable[["Api"], Awaitable[Any]],
    by_database: Callable[["Registry"], Awaitable[Any]],
) -> Any:
    """Ask the API or the database, as the settings say. A refusal ends the command with one line."""
    from app.machinery.errors import ApiError

    if database_url:
        made = made.model_copy(update={"database_url": SecretStr(database_url)})
    if made.server or not made.database_url.get_secret_value():
        return call_api(made, by_api)
    try:
        return asyncio.run(_in_database(made, by_database))
    except ApiError as error:
        typer.echo(error.message, err=True)
        raise typer.Exit(1) from None


async def _in_database(made: Settings, work: Callable[["Registry"], Awaitable[Any]]) -> Any:
    from app.registry.verbs.objects import Registry

    async with open_database(made) as store:
        return await work(Registry(store, now))


def rotate(data_dir: DataDir = None) -> None:
    """Replace the tokens that `jobplane up` made in DATA_DIR, and the one in its kubeconfig. Old tokens end within seconds.

    The agent of `jobplane up` restarts with its new token; its pods keep running.
    """
    from app.api.auth.certificates import write_private

    made = read_settings(data_dir=data_dir, log_level="warning")
    paths = [path for name in ("admin.token", "agent.token") if (path := made.data_dir / name).exists()]
    if not paths:
        typer.echo(f"{made.data_dir} has no admin.token: pass the --data-dir of `jobplane up`", err=True)
        raise typer.Exit(1)
    before = api_access(made) if (made.data_dir / "kubeconfig").exists() else None
    for path in paths:
        write_private(path, secrets.token_urlsafe(32).encode())
    if before and asyncio.run(_serves(made, before)):
        typer.echo(f"tokens are rotated, and {made.data_dir / 'kubeconfig'} is updated")
    else:
        typer.echo("tokens are rotated; no API runs here, so the old tokens end when it starts")


async def _serves(made: Settings, before: ApiAccess) -> bool:
    """Wait until the API, which reads the files every second, takes the new token and refuses the old one."""
    ends = time.monotonic() + TAKEN_SECONDS
    while time.monotonic() < ends:
        old = await _answer(before)
        if old is None:
            return False
        if (old, await _answer(api_access(made))) == (401, 200):
            return True
        await asyncio.sleep(0.1)
    return False


async def _answer(where: ApiAccess) -> int | None:
    from app.machinery.errors import ApiError

    api = where.open()
    try:
        await api.request("GET", "/version")
    except ApiError as error:
        return error.code
    except OSError:
        return None
    finally:
        await api.close()
    return 200

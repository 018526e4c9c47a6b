"""`jobplane secrets`: the encryption of Secrets in the database: status, rotation, decryption. Added by `app.main.cli`."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import typer

from app.main.cli_options import call_api, with_api_options

if TYPE_CHECKING:
    from app.client.api import Api

secrets = typer.Typer(no_args_is_help=True, help="Manage the encryption of Secrets in the database.")
_COLUMNS = ("DATA KEY", "MASTER KEY", "CREATED", "ACTIVE SINCE", "VERSIONS OF SECRETS")
_LOOK_SECONDS = 1.0
Keys = list[dict[str, Any]]


@secrets.command()
@with_api_options
def status(made: Any) -> None:
    """List the data keys, and how many versions of Secrets are stored under each; "plain text" if they are not encrypted."""

    async def work(api: "Api") -> Keys:
        return await _request(api, "GET")

    rows = [_COLUMNS, *map(_row, call_api(made, work))]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
    for row in rows:
        typer.echo("   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


@secrets.command()
@with_api_options
def rotate(made: Any) -> None:
    """Encrypt all Secrets under a new data key, and wrap all data keys under the newest master key. Shows the progress.

    The controllers do the work: Ctrl-C ends only the display.
    """
    call_api(made, _changing("POST", "encrypted under the new key"))


@secrets.command()
@with_api_options
def decrypt(made: Any) -> None:
    """Store all Secrets as plain text again. Then the key settings can be taken away. Shows the progress."""
    call_api(made, _changing("DELETE", "stored as plain text"))


def _changing(method: str, how: str) -> Callable[["Api"], Awaitable[None]]:
    async def work(api: "Api") -> None:
        keys = await _request(api, method)
        newest = keys[-1]["name"]
        shown = ""
        while True:
            done, total = _progress(keys, newest)
            if (line := f"{done} of {total} versions of Secrets are {how}") != shown:
                typer.echo(line)
                shown = line
            if done == total:
                return
            await asyncio.sleep(_LOOK_SECONDS)
            keys = await _request(api, "GET")

    return work


async def _request(api: "Api", method: str) -> Keys:
    from app.client.protocol import DATA_KEYS

    found: Keys = (await api.request_json(method, DATA_KEYS))["items"]
    return found


def _progress(keys: Keys, newest: str) -> tuple[int, int]:
    """Count the versions that are stored as the newest data key says, and all."""
    is_plain = not any(each.get("masterKey") for each in keys if each.get("name") == newest)
    wanted = "" if is_plain else newest
    done = sum(each["versions"] for each in keys if each.get("name", "") == wanted)
    return done, sum(each["versions"] for each in keys)


def _row(key: dict[str, Any]) -> tuple[str, ...]:
    name = key.get("name", "")
    is_plain = not key.get("masterKey")
    return (
        name or "-",
        "plain text" if is_plain else key["masterKey"],
        key.get("createdAt", "-"),
        key.get("activeAt", "-"),
        str(key["versions"]),
    )

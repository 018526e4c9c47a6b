"""`jobplane page`: print a link that opens the page, signed in. Added by `app.main.cli`."""

from typing import TYPE_CHECKING

import typer

from app.main.cli_options import api_access, call_api, with_api_options
from app.settings import Settings

if TYPE_CHECKING:
    from app.client.api import Api


@with_api_options
def page(made: Settings) -> None:
    """Print a link to the page that signs its visitor in as the administrator, once, within ten minutes.

    Browsers warn of the certificate, because its authority is this Jobplane's own: DATA_DIR/tls/ca.crt.
    """
    from app.api.auth.signin_codes import signin_link
    from app.client.protocol import SIGNIN_CODES

    async def create(api: "Api") -> str:
        return str((await api.request_json("POST", SIGNIN_CODES, {}))["code"])

    typer.echo(signin_link(api_access(made).server, call_api(made, create)))

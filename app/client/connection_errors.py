"""Connection errors of clients: their reason in words, and what to do. Used by the client, and by an agent before it runs.

Promises: an error for which `remedy` has advice stays until a setting, a certificate or a clock is changed.
"""

import asyncio
import ssl
from collections.abc import Iterator
from contextlib import suppress
from urllib.parse import urlsplit

_OF_CERTIFICATES = {  # by X509_V_ERR_* of OpenSSL
    9: "the clock of this machine is probably wrong: set it",  # not yet valid
    10: "set the clock of this machine if it is wrong; otherwise start the API again, which renews its certificate",
    62: "pass a --server or a --tls-name that the certificate is for",  # HOSTNAME_MISMATCH
    64: "pass a --server or a --tls-name that the certificate is for",  # IP_ADDRESS_MISMATCH
}
_OF_OTHERS = "pass the --ca-hash that came with the join token, or the API's CA certificate as --ca-file"
_NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "UNKNOWN_PROTOCOL")
_HUNG_UP = "disconnected without sending a response"
_SECONDS = 5.0


def describe(server: str, error: BaseException) -> str:
    """With the server, and with the operating system's error, which HTTP libraries leave out."""
    root = [
        each for each in _causes(error) if isinstance(each, OSError) and (each.errno or isinstance(each, ssl.SSLError))
    ]
    shown = root[-1] if root else error
    return f"{server}: {shown or type(shown).__name__}"


def remedy(server: str, error: BaseException) -> str:
    """The advice for an error that stays; empty for one that may pass."""
    for each in _causes(error):
        if isinstance(each, ssl.SSLCertVerificationError):
            return f"{server}: {each.verify_message or each}: {_OF_CERTIFICATES.get(each.verify_code, _OF_OTHERS)}"
        if isinstance(each, ssl.SSLError) and (each.reason or "") in _NO_TLS:
            return f"{server} does not speak TLS: check host and port; for an API with --no-tls, pass http://"
    return ""


async def remedy_now(server: str, error: BaseException) -> str:
    """Like `remedy`; asks a server that hung up on plain HTTP whether it speaks TLS."""
    if (
        server.startswith("http://")
        and any(_HUNG_UP in str(each) for each in _causes(error))
        and await _speaks_tls(server)
    ):
        return f"{server} speaks TLS: pass a --server with https://"
    return remedy(server, error)


async def _speaks_tls(server: str) -> bool:
    at = urlsplit(server)
    blind = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    blind.check_hostname = False
    blind.verify_mode = ssl.CERT_NONE
    with suppress(OSError):
        async with asyncio.timeout(_SECONDS):
            _, writer = await asyncio.open_connection(at.hostname, at.port or 80, ssl=blind)
            writer.close()
            return True
    return False


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error and what it was made of, outermost first."""
    while error:
        yield error
        if isinstance(error, BaseExceptionGroup):
            for each in error.exceptions:
                yield from _causes(each)
            return
        error = error.__cause__ or error.__context__

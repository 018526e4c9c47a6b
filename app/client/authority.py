"""The authority behind an API, told by the hash of its certificate: for machines that have no file of it yet.

It is fetched from the API itself over a connection that proves nothing, and compared. Nothing secret is sent on the way.
"""

import hashlib
import ssl

import httpx

from app.client.api import UnreachableError

PATH = "/apis/agents.jobplane.dev/v1/ca"
_PREFIX = "sha256:"


class MismatchError(Exception):
    """What answers is not what the hash was made of, or tells no authority."""


def hash_of(pem: str) -> str:
    """As `openssl x509 -noout -fingerprint -sha256` tells it, without colons."""
    return _PREFIX + hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem.strip())).hexdigest()


async def authority(server: str, wanted: str) -> str:
    """The certificate with this hash, PEM."""
    text = await _fetched(server)
    try:
        der = ssl.PEM_cert_to_DER_cert(text.strip())
    except ValueError as error:
        raise MismatchError(f"{server} tells no authority") from error
    if hashlib.sha256(der).hexdigest() != wanted.lower().removeprefix(_PREFIX).replace(":", ""):
        raise MismatchError(
            f"the authority of {server} is not the one of the --ca-hash: either the hash is wrong, or something else "
            "answers there"
        )
    return ssl.DER_cert_to_PEM_cert(der)  # what was compared, and nothing that came after it


async def _fetched(server: str) -> str:
    blind = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    blind.check_hostname = False
    blind.verify_mode = ssl.CERT_NONE
    try:
        async with httpx.AsyncClient(base_url=server, verify=blind, trust_env=False, timeout=10) as client:
            answer = await client.get(PATH)
    except httpx.TransportError as error:
        raise UnreachableError(str(error) or type(error).__name__) from error
    if answer.status_code >= 500:
        raise UnreachableError(f"the server answered {answer.status_code}")
    if answer.is_error:
        raise MismatchError(f"{server} tells no authority: {answer.status_code}")
    return answer.text

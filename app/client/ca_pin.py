"""CA pinning: the API's authority, verified by the hash of its certificate, for machines that have no file of it yet.

It is fetched from the API itself over a connection that proves nothing, and compared. Nothing secret is sent on the way.
"""

import hashlib
import re
import ssl

import httpx

from app.client.api import UnreachableError
from app.client.connection_errors import describe
from app.client.protocol import CA

_PREFIX = "sha256:"
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)


class MismatchError(Exception):
    """What answers is not what the hash was made of, or tells no authority."""


def hash_of(pem: str) -> str:
    """As `openssl x509 -noout -fingerprint -sha256` tells it, without colons: of the first, which signs, if there are two."""
    return _PREFIX + hashlib.sha256(certificates_in(pem)[0]).hexdigest()


async def authority(server: str, wanted: str) -> str:
    """The certificate with this hash, PEM; and the next one, if the authority is being rotated."""
    fingerprint = wanted.lower().removeprefix(_PREFIX).replace(":", "")
    blind = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    blind.check_hostname = False
    blind.verify_mode = ssl.CERT_NONE
    try:
        certificates = certificates_in(await _fetch(server, blind))
    except ValueError as error:
        raise MismatchError(f"{server} tells no authority") from error
    known = [der for der in certificates if hashlib.sha256(der).hexdigest() == fingerprint]
    if not known:
        raise MismatchError(
            f"the authority of {server} is not the one of the --ca-hash: either the hash is wrong, or something else "
            "answers there"
        )
    if len(certificates) == 1:
        return ssl.DER_cert_to_PEM_cert(known[0])  # what was compared, and nothing that came after it
    # What else there is to trust is only taken over a connection that the compared one has signed.
    proven = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    proven.check_hostname = False
    proven.load_verify_locations(cadata=known[0])
    return "".join(map(ssl.DER_cert_to_PEM_cert, certificates_in(await _fetch(server, proven))))


def certificates_in(pem: str) -> list[bytes]:
    """Each certificate in a PEM file, as DER; ValueError if there is none."""
    found = _CERTIFICATE.findall(pem)
    if not found:
        raise ValueError("no certificate")
    return [ssl.PEM_cert_to_DER_cert(each) for each in found]


async def _fetch(server: str, trust: ssl.SSLContext) -> str:
    try:
        async with httpx.AsyncClient(base_url=server, verify=trust, trust_env=False, timeout=10) as client:
            answer = await client.get(CA)
    except httpx.TransportError as error:
        raise UnreachableError(describe(server, error)) from error
    if answer.status_code >= 500:
        raise UnreachableError(f"{server} answered {answer.status_code}")
    if answer.is_error:
        raise MismatchError(f"{server} tells no authority: {answer.status_code}")
    return answer.text

"""Client certificate of a node: asked for, kept, shown to the API beside the token, and replaced in the last part of its life.

The agent runs it if JOBPLANE_CLIENT_CERTIFICATE is set. As the kubelet does, it makes a CertificateSigningRequest for the signer
kubernetes.io/kube-apiserver-client-kubelet; controllers approve that of a node for itself, and sign it. It is asked for by
the token alone, over a connection without a certificate: so one that has ended can be replaced, too.
"""

import asyncio
import base64
import os
import zlib
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from app.agent.clock import Clock
from app.client.api import Api
from app.client.protocol import CERTIFICATE_REQUEST_PREFIX, CERTIFICATE_REQUESTS
from app.machinery.errors import ApiError
from app.structured_logging import Logger

SIGNER = "kubernetes.io/kube-apiserver-client-kubelet"
PREPARE_SECONDS = 30.0  # that a start waits for the first certificate
PAUSE, LONGEST_PAUSE = 0.2, 5.0  # seconds between questions whether it is signed
ISSUE_SECONDS = 20.0  # until a request counts as unanswered
RETRY_SECONDS = 10.0
LONGEST_SLEEP = 600.0  # seconds; the authority may have been rotated

logger = Logger(__name__)


class NotIssuedError(Exception):
    """The request was denied, has failed, or was not answered in time."""


def certificate_path(state: Path) -> Path:
    """Return the file in an agent's folder with its certificate and its key."""
    return state / "client.pem"


def renew_at(issued: datetime, end: datetime, node: str) -> datetime:
    """Return when to renew a certificate: after 70 to 90 % of its life, as the kubelet does, nodes not all at once."""
    spread = zlib.crc32(node.encode()) % 1000 / 1000
    return issued + (end - issued) * (0.7 + 0.2 * spread)


class ClientCertificate:
    """Of one node. `state`: the folder of its agent. `ca_file`: authorities of the API; None: the machine's."""

    def __init__(self, api: Api, state: Path, node: str, clock: Clock, ca_file: Path | None = None) -> None:
        self._api, self._path, self._node, self._clock = api, certificate_path(state), node, clock
        self._ca_file = ca_file

    async def prepare(self) -> None:
        """Show the kept certificate, or get one. After PREPARE_SECONDS the start goes on without: pods that run need it more."""
        ends, pause = self._clock.elapsed() + PREPARE_SECONDS, PAUSE
        while not await self._show_kept() and not await self._renewed():
            if self._clock.elapsed() >= ends:
                logger.warning("there is no client certificate yet; starting without one", node=self._node)
                return
            await self._clock.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)

    async def run(self) -> None:
        """For ever. An API that is away or refuses is asked again."""
        while True:
            await self._clock.sleep(await self._advance())

    async def _show_kept(self) -> bool:
        """Show the certificate of an earlier run, unless it has ended: TLS would refuse the connection."""
        if (kept := self._kept()) is None or kept[1] <= self._clock.now():
            return False
        await self._api.use_certificate(self._path)
        return True

    def _kept(self) -> tuple[datetime, datetime] | None:
        """Return when the kept certificate was issued, and when it ends. Its own beginning is backdated.

        None if there is none, or its authority was replaced.
        """
        try:
            certificate = x509.load_pem_x509_certificate(self._path.read_bytes())
            if self._ca_file is not None and not _is_signed(certificate, self._ca_file.read_bytes()):
                return None
            issued = datetime.fromtimestamp(self._path.stat().st_mtime, UTC)
        except (OSError, ValueError):
            return None
        return max(issued, certificate.not_valid_before_utc), certificate.not_valid_after_utc

    async def _advance(self) -> float:
        """Renew the certificate if it is due; return the seconds until the next look."""
        kept, now = self._kept(), self._clock.now()
        due = renew_at(*kept, self._node) if kept else now
        if due > now:
            return min((due - now).total_seconds(), LONGEST_SLEEP)
        return 0.0 if await self._renewed() else RETRY_SECONDS

    async def _renewed(self) -> bool:
        """Return whether there is a new certificate; log why there is none."""
        try:
            await self._renew()
        except (ApiError, OSError, NotIssuedError, TimeoutError) as error:
            logger.warning("cannot get the node's client certificate; retrying", node=self._node, error=error)
            return False
        return True

    async def _renew(self) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        api = self._api.without_certificate()
        try:
            async with asyncio.timeout(ISSUE_SECONDS):
                certificate = await self._issue(api, key)
        finally:
            await api.close()
        _write_private(
            self._path,
            certificate + key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        )
        await self._api.use_certificate(self._path)
        logger.info("the node has a new client certificate", node=self._node)

    async def _issue(self, api: Api, key: ec.EllipticCurvePrivateKey) -> bytes:
        """Return the certificate, PEM. Raises NotIssuedError if it is refused."""
        request = _request(self._node, key)
        name = f"{CERTIFICATE_REQUEST_PREFIX}{self._node}-{os.urandom(5).hex()}"
        spec = {
            "request": base64.b64encode(request).decode(),
            "signerName": SIGNER,
            "usages": ["digital signature", "client auth"],
        }
        await api.request("POST", CERTIFICATE_REQUESTS, {"metadata": {"name": name}, "spec": spec})
        pause = PAUSE
        while True:
            status: dict[str, Any] = (await api.request_json("GET", f"{CERTIFICATE_REQUESTS}/{name}")).get("status", {})
            if certificate := status.get("certificate"):
                return base64.b64decode(certificate)
            for each in status.get("conditions", []):
                if each["type"] in ("Denied", "Failed"):
                    raise NotIssuedError(f"{name}: {each['type']}: {each.get('message', '')}")
            await self._clock.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)


def _is_signed(certificate: x509.Certificate, authorities: bytes) -> bool:
    for each in x509.load_pem_x509_certificates(authorities):
        with suppress(ValueError, TypeError, InvalidSignature):
            certificate.verify_directly_issued_by(each)
            return True
    return False


def _request(node: str, key: ec.EllipticCurvePrivateKey) -> bytes:
    names = ((NameOID.ORGANIZATION_NAME, "system:nodes"), (NameOID.COMMON_NAME, f"system:node:{node}"))
    subject = x509.Name([x509.NameAttribute(oid, text) for oid, text in names])
    return x509.CertificateSigningRequestBuilder(subject).sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)


def _write_private(path: Path, content: bytes) -> None:
    new = path.with_name(f"{path.name}.new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)

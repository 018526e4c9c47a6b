"""An admission webhook: a real HTTPS server in the test's own loop, with a certificate of an authority made for it."""

import asyncio
import base64
import ssl
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from app.api.auth import certificates

Answer = Callable[[dict[str, Any]], dict[str, Any] | Awaitable[dict[str, Any]]]
SERVICE = "reviewer.default.svc"


@cache
def tls(service: str = SERVICE) -> certificates.Certificates:
    """An authority, and a certificate for this machine and a Service."""
    return certificates.ensure(Path(tempfile.mkdtemp()), ["127.0.0.1", service])


class WebhookServer:
    """`answer`: the response to a request, without its uid. `paths`, `requests`: what came, in order."""

    def __init__(self, service: str) -> None:
        self.tls = tls(service)
        self.answer: Answer = lambda _: {"allowed": True}
        self.requests: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.connections = 0
        self.status = 200
        self.port = 0
        self._writers: set[asyncio.StreamWriter] = set()

    def url(self, path: str = "/") -> str:
        return f"https://127.0.0.1:{self.port}{path}"

    def client_config(self, path: str = "/") -> dict[str, Any]:
        return {"url": self.url(path), "caBundle": base64.b64encode(self.tls.ca.read_bytes()).decode()}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
                review = msgspec.json.decode(await reader.readexactly(length))
                self.paths.append(head.split(b" ")[1].decode())
                self.requests.append(review["request"])
                body = await self._respond(review)
                writer.write(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%b" % (self.status, len(body), body))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._writers.discard(writer)
            writer.transport.abort()

    async def _respond(self, review: dict[str, Any]) -> bytes:
        answer = self.answer(review["request"])
        response = await answer if isinstance(answer, Awaitable) else answer
        return msgspec.json.encode(
            {**review, "request": None, "response": {"uid": review["request"]["uid"], **response}}
        )

    def hang_up(self) -> None:
        """Close all connections, as a webhook that restarts."""
        for writer in list(self._writers):
            writer.transport.abort()


@asynccontextmanager
async def serving(host: str = "127.0.0.1", service: str = SERVICE) -> AsyncIterator[WebhookServer]:
    webhook = WebhookServer(service)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(webhook.tls.cert, webhook.tls.key)
    server = await asyncio.start_server(webhook.serve, host, 0, ssl=context)
    webhook.port = server.sockets[0].getsockname()[1]
    try:
        yield webhook
    finally:
        server.close()
        webhook.hang_up()


def patching(*operations: dict[str, Any]) -> dict[str, Any]:
    """A response with a JSON patch."""
    patch = base64.b64encode(msgspec.json.encode(operations)).decode()
    return {"allowed": True, "patchType": "JSONPatch", "patch": patch}


def a_webhook(client_config: dict[str, Any], resource: str = "jobs", **fields: Any) -> dict[str, Any]:
    """A webhook of a configuration, by default for what happens to Jobs."""
    group = {"jobs": "batch", "cronjobs": "batch"}.get(resource.partition("/")[0], "*")
    rule = {"apiGroups": [group], "apiVersions": ["*"], "operations": ["*"], "resources": [resource]}
    usual = {
        "name": "w.example.com",
        "clientConfig": client_config,
        "rules": [rule],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    return usual | fields

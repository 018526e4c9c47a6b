"""A registry of images in this process, on loopback unless told otherwise: engines pull from it by plain HTTP.

It holds what it is given.
"""

import base64
import gzip
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread

from app.runtimes.base import Login
from tests.runtimes.images import Built, digest

_PIECE = 1 << 18
_DOCKER = "application/vnd.docker"
MANIFEST = f"{_DOCKER}.distribution.manifest.v2+json"


class Registry(ThreadingHTTPServer):
    """`login`: without it nothing is given out. `rate`: bytes a second that it sends at most, to all together; 0: any."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        super().__init__((host, 0), _Answers)
        self.name = f"{host}:{self.server_address[1]}"
        self.login: Login | None = None
        self.files: dict[str, tuple[str, bytes]] = {}
        self.rate = 0
        self._lock = Lock()

    def add(self, name: str, image: Built) -> str:
        """What it is pulled as."""
        return self.add_layers(name, image.document, [gzip.compress(image.layer, 1, mtime=0)])

    def add_layers(self, name: str, document: bytes, layers: Sequence[bytes], tag: str = "1") -> str:
        """The same, of layers that are compressed."""
        kinds = [f"{_DOCKER}.container.image.v1+json", *[f"{_DOCKER}.image.rootfs.diff.tar.gzip"] * len(layers)]
        parts = [document, *layers]
        config, *packed = [
            {"mediaType": kind, "size": len(content), "digest": digest(content)}
            for kind, content in zip(kinds, parts, strict=True)
        ]
        about = {"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": packed}
        manifest = json.dumps(about).encode()
        for content in parts:
            self.files[f"/v2/{name}/blobs/{digest(content)}"] = "application/octet-stream", content
        for reference in (tag, digest(manifest)):
            self.files[f"/v2/{name}/manifests/{reference}"] = MANIFEST, manifest
        return f"{self.name}/{name}:{tag}"

    def pace(self, count: int) -> None:
        """Wait for as long as it takes to send so many bytes."""
        if self.rate:
            with self._lock:
                time.sleep(count / self.rate)


class _Answers(BaseHTTPRequestHandler):
    server: Registry
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        login = self.server.login
        basic = base64.b64encode(f"{login.username}:{login.password}".encode()).decode() if login else ""
        kind, content = self.server.files.get(self.path, ("application/json", b""))
        if login and self.headers["Authorization"] != f"Basic {basic}":
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="test"')
            content = b""
        else:
            self.send_response(200 if content or self.path == "/v2/" else 404)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        if content:
            self.send_header("Docker-Content-Digest", digest(content))
        self.end_headers()
        for start in range(0, len(content) if self.command == "GET" else 0, _PIECE):
            self.server.pace(len(content[start : start + _PIECE]))
            self.wfile.write(content[start : start + _PIECE])

    def do_HEAD(self) -> None:
        self.do_GET()

    def log_message(self, *args: object) -> None:  # it would write to the tests' output
        return


@contextmanager
def registry(host: str = "127.0.0.1") -> Iterator[Registry]:
    with Registry(host) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()

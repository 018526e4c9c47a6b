"""A registry of images on loopback, in this process: engines pull from it by plain HTTP. It holds what it is given."""

import base64
import gzip
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from app.runtimes.base import Login
from tests.runtimes.images import Built, digest

_DOCKER = "application/vnd.docker"
MANIFEST = f"{_DOCKER}.distribution.manifest.v2+json"


class Registry(ThreadingHTTPServer):
    """`login`: without it nothing is given out."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.name = f"127.0.0.1:{self.server_address[1]}"
        self.login: Login | None = None
        self.files: dict[str, tuple[str, bytes]] = {}

    def add(self, name: str, image: Built) -> str:
        """What it is pulled as."""
        layer = gzip.compress(image.layer, 1, mtime=0)
        parts = {f"{_DOCKER}.container.image.v1+json": image.document, f"{_DOCKER}.image.rootfs.diff.tar.gzip": layer}
        config, packed = [
            {"mediaType": kind, "size": len(content), "digest": digest(content)} for kind, content in parts.items()
        ]
        about = {"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [packed]}
        manifest = json.dumps(about).encode()
        for content in parts.values():
            self.files[f"/v2/{name}/blobs/{digest(content)}"] = "application/octet-stream", content
        for reference in ("1", digest(manifest)):
            self.files[f"/v2/{name}/manifests/{reference}"] = MANIFEST, manifest
        return f"{self.name}/{name}:1"


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
        if self.command == "GET":
            self.wfile.write(content)

    def do_HEAD(self) -> None:
        self.do_GET()

    def log_message(self, *args: object) -> None:  # it would write to the tests' output
        return


@contextmanager
def registry() -> Iterator[Registry]:
    with Registry() as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()

"""The client libraries that people use, unmodified and over TLS: each runs a Job to its end, watches, patches, deletes.

JOBPLANE_CLIENTS=all is with more libraries for Python, and older versions, too.
"""

import json
import os
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.cluster import Cluster, free_port, until
from tests.e2e.environments import node_with, python_with

SCRIPTS = Path(__file__).parent / "clients"
PYTHON = {"kubernetes-37": ("kubernetes_client.py", "kubernetes==37.0.2")}
if "JOBPLANE_CLIENTS" in os.environ:
    PYTHON |= {
        "kubernetes-36": ("kubernetes_client.py", "kubernetes>=36,<37"),
        "kubernetes_asyncio": ("kubernetes_asyncio_client.py", "kubernetes_asyncio==36.1.0"),
        "kr8s": ("kr8s_client.py", "kr8s==0.20.15"),
        "lightkube": ("lightkube_client.py", "lightkube==1.0.1"),
    }
SAW = {
    "succeeded": True,
    "changes": True,
    "patched": "yes",
    "listed": True,
    "log": "hello\n",
    "twice": "AlreadyExists",
    "deleted": True,
}


SERVER = """
from http.server import BaseHTTPRequestHandler, HTTPServer
class Hello(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"hello")
    def log_message(self, *_):
        pass
HTTPServer(("127.0.0.1", PORT), Hello).serve_forever()
"""


def said(command: list[str], cluster: Cluster, home: Path) -> Any:
    """What the script prints at its end."""
    variables = {"HOME": str(home), "PATH": os.environ["PATH"], "KUBECONFIG": str(cluster.kubeconfig)}
    ran = subprocess.run(command, env=variables, cwd=home, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return json.loads(ran.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", PYTHON)
def test_a_python_client_runs_watches_patches_and_deletes_a_job(name: str, cluster: Cluster, tmp_path: Path) -> None:
    script, requirement = PYTHON[name]
    python = python_with(name, requirement)

    assert said([str(python), str(SCRIPTS / script)], cluster, tmp_path) == SAW


def test_the_python_client_streams(cluster: Cluster, tmp_path: Path) -> None:
    port = free_port()
    (tmp_path / "hello.py").write_text(SERVER.replace("PORT", str(port)))
    script = f"python3 {tmp_path}/hello.py & while read line; do echo got $line; done"
    container = {"name": "main", "image": "busybox", "stdin": True, "command": ["sh", "-c", script]}
    spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container]}
    path = "/api/v1/namespaces/default/pods"
    with cluster.client() as client:
        client.post(path, json={"metadata": {"name": "streamed"}, "spec": spec}).raise_for_status()
        until(lambda: client.get(f"{path}/streamed").json()["status"]["phase"] == "Running", 20, "it runs")
        until(lambda: _answers(port), 20, "it listens")
        python = python_with("kubernetes-37", "kubernetes==37.0.2")
        told = said([str(python), str(SCRIPTS / "kubernetes_stream.py"), str(port)], cluster, tmp_path)
        client.delete(f"{path}/streamed").raise_for_status()

    assert told.pop("refused").startswith("Handshake status 404 Not Found")
    assert told == {"talked": ["got one\n", "aside\n", 3], "heard": "got two", "served": "hello"}


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.skipif(
    "JOBPLANE_CLIENTS" not in os.environ, reason="only with JOBPLANE_CLIENTS: it is installed for this test"
)
def test_the_javascript_client_runs_watches_patches_and_deletes_a_job(cluster: Cluster, tmp_path: Path) -> None:
    node, folder = node_with("client-node", "@kubernetes/client-node@2.0.1")
    script = shutil.copy(SCRIPTS / "client_node.mjs", folder)  # imports are looked for beside the script

    assert said([str(node), script], cluster, tmp_path) == SAW

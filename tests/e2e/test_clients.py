"""The client libraries that people use, unmodified and over TLS: each runs a Job to its end, watches, patches, deletes."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.e2e.cluster import Cluster
from tests.e2e.environments import node_with, python_with

SCRIPTS = Path(__file__).parent / "clients"
PYTHON = {
    "kubernetes-37": ("kubernetes_client.py", "kubernetes==37.0.2"),
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


def said(command: list[str], cluster: Cluster, home: Path) -> object:
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


def test_the_javascript_client_runs_watches_patches_and_deletes_a_job(cluster: Cluster, tmp_path: Path) -> None:
    node, folder = node_with("client-node", "@kubernetes/client-node@2.0.1")
    script = shutil.copy(SCRIPTS / "client_node.mjs", folder)  # imports are looked for beside the script

    assert said([str(node), script], cluster, tmp_path) == SAW

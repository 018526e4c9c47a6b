"""A person asks for a client certificate, an administrator approves it, and kubectl and jobplane sign in by it."""

import base64
import json
import subprocess
from pathlib import Path

import yaml

from tests.e2e import preloaded
from tests.e2e.cluster import Cluster, environment
from tests.e2e.kubectl import newest

SECONDS = "60s"


def openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)


def run(kubeconfig: Path, *command: str, stdin: str = "", code: int = 0) -> str:
    variables = environment(KUBECONFIG=str(kubeconfig), HOME=str(kubeconfig.parent))
    ran = subprocess.run(command, env=variables, input=stdin, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == code, f"{command}: {ran.returncode}\n{ran.stdout}{ran.stderr}"
    return ran.stdout + ran.stderr


def test_a_certificate_is_asked_for_approved_signed_and_used(cluster: Cluster, tmp_path: Path) -> None:
    kubectl = str(newest())
    key, request = tmp_path / "ada.key", tmp_path / "ada.csr"
    openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", str(key))
    openssl("req", "-new", "-key", str(key), "-subj", "/O=vision/CN=ada", "-out", str(request))
    spec = {
        "request": base64.b64encode(request.read_bytes()).decode(),
        "signerName": "kubernetes.io/kube-apiserver-client",
    }
    body = {"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": "ada"}}
    body["spec"] = spec | {"usages": ["client auth"], "expirationSeconds": 3600}
    run(cluster.kubeconfig, kubectl, "create", "-f", "-", stdin=json.dumps(body))
    assert "Pending" in run(cluster.kubeconfig, kubectl, "get", "csr", "ada")
    run(cluster.kubeconfig, kubectl, "certificate", "approve", "ada")
    waited = ("wait", "--for=jsonpath={.status.certificate}", "csr/ada", f"--timeout={SECONDS}")
    run(cluster.kubeconfig, kubectl, *waited)
    assert "Approved,Issued" in run(cluster.kubeconfig, kubectl, "get", "csr", "ada")
    described = run(cluster.kubeconfig, kubectl, "describe", "csr", "ada")
    assert "Requesting User:" in described
    certificate = run(cluster.kubeconfig, kubectl, "get", "csr", "ada", "-o", "jsonpath={.status.certificate}")

    config = yaml.safe_load(cluster.kubeconfig.read_text())
    own = {"client-certificate-data": certificate, "client-key-data": base64.b64encode(key.read_bytes()).decode()}
    config["users"] = [{"name": "jobplane", "user": own}]
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(config))
    who = json.loads(run(kubeconfig, kubectl, "auth", "whoami", "-o", "json"))["status"]["userInfo"]
    assert (who["username"], who["groups"]) == ("ada", ["vision", "system:authenticated"])
    assert 'User "ada" cannot list' in run(kubeconfig, kubectl, "get", "pods", code=1)
    binding = ("create", "rolebinding", "vision", "--clusterrole", "edit", "--group", "vision")
    run(cluster.kubeconfig, kubectl, *binding)
    run(kubeconfig, kubectl, "create", "job", "by-certificate", "--image", "busybox", "--", "echo", "hello")
    run(kubeconfig, kubectl, "wait", "--for=condition=complete", "job/by-certificate", f"--timeout={SECONDS}")
    assert run(kubeconfig, kubectl, "logs", "job/by-certificate") == "hello\n"  # a stream of an upgraded right
    assert "by-certificate" in run(kubeconfig, str(preloaded.program()), "list")

    run(cluster.kubeconfig, kubectl, "delete", "rolebinding/vision", "csr/ada")


def test_what_is_denied_is_not_signed(cluster: Cluster, tmp_path: Path) -> None:
    kubectl = str(newest())
    key, request = tmp_path / "eve.key", tmp_path / "eve.csr"
    openssl(
        "req", "-new", "-newkey", "rsa:2048", "-nodes", "-keyout", str(key), "-subj", "/CN=eve", "-out", str(request)
    )
    body = {"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": "eve"}}
    spec = {"request": base64.b64encode(request.read_bytes()).decode(), "usages": ["client auth"]}
    body["spec"] = spec | {"signerName": "kubernetes.io/kube-apiserver-client"}
    run(cluster.kubeconfig, kubectl, "create", "-f", "-", stdin=json.dumps(body))
    run(cluster.kubeconfig, kubectl, "certificate", "deny", "eve")
    assert "Denied" in run(cluster.kubeconfig, kubectl, "get", "csr", "eve")
    assert run(cluster.kubeconfig, kubectl, "get", "csr", "eve", "-o", "jsonpath={.status.certificate}") == ""
    run(cluster.kubeconfig, kubectl, "delete", "csr/eve")

"""Conversion webhooks, pods/proxy and services/proxy through kubectl, on a running service with an agent.

Only with JOBPLANE_WEBHOOKS=1, as `make test-long` sets it.
"""

import json
import os
import socket
import sys

import pytest

from tests.api.custom.definitions import DEFINITIONS, GROUP, widget
from tests.api.custom.test_conversion import a_version, convert
from tests.e2e.kubectl import Kubectl, on_every_version
from tests.e2e.test_kubectl_webhooks import NAME, endpoints, webhook_of

pytestmark = pytest.mark.skipif("JOBPLANE_WEBHOOKS" not in os.environ, reason="only with JOBPLANE_WEBHOOKS=1")


@on_every_version
def test_both_versions_of_a_kind_are_read_written_and_watched(kubectl: Kubectl) -> None:
    with webhook_of(kubectl.namespace) as webhook:
        webhook.answer = convert
        for each in endpoints(webhook):
            kubectl.send("apply", each)
        plural, kind = f"gadgets{kubectl.minor}", f"Gadget{kubectl.minor}"
        service = {"namespace": kubectl.namespace, "name": NAME, "path": "/convert"}
        config = {"service": service, "caBundle": webhook.client_config()["caBundle"]}
        crd = {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{plural}.{GROUP}"},
            "spec": {
                "group": GROUP,
                "scope": "Namespaced",
                "names": {"plural": plural, "kind": kind},
                "versions": [a_version("v1", "color", storage=False), a_version("v2", "paint", storage=True)],
                "conversion": {
                    "strategy": "Webhook",
                    "webhook": {"clientConfig": config, "conversionReviewVersions": ["v1"]},
                },
            },
        }
        kubectl.send("apply", crd)
        try:
            _use_both_versions(kubectl, plural, kind)
        finally:
            assert kubectl.api.delete(f"{DEFINITIONS}/{crd['metadata']['name']}").status_code == 200
        assert any(each["desiredAPIVersion"] == f"{GROUP}/v1" for each in webhook.requests)


def _use_both_versions(kubectl: Kubectl, plural: str, kind: str) -> None:
    one, two = f"{plural}.v1.{GROUP}", f"{plural}.v2.{GROUP}"
    kubectl("wait", "--for=condition=established", f"crd/{plural}.{GROUP}")
    made = widget(kind=kind)
    kubectl.send("apply", made)
    assert kubectl.send("apply", made).endswith("unchanged\n")
    assert kubectl("get", one, "w", "-o", "jsonpath={.apiVersion} {.spec.color}") == f"{GROUP}/v1 red"
    assert kubectl("get", two, "w", "-o", "jsonpath={.apiVersion} {.spec.paint}") == f"{GROUP}/v2 red"
    kubectl("patch", one, "w", "--type=merge", "-p", json.dumps({"spec": {"color": "blue"}}))
    assert kubectl("get", two, "w", "-o", "jsonpath={.spec.paint}") == "blue"
    assert kubectl.send("apply", made, options=["--server-side", "--force-conflicts"]).endswith("serverside-applied\n")
    assert kubectl("get", one).splitlines()[1].split()[:2] == ["w", "red"]
    kubectl("wait", one, "w", "--for=jsonpath={.spec.color}=red", "--timeout=30s")
    kubectl("delete", one, "w")


@on_every_version
def test_a_pod_is_reached_through_the_api(kubectl: Kubectl) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    kubectl.send("apply", _server_pod(port))
    kubectl.send(
        "apply",
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "web"},
            "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": port}]},
        },
    )
    kubectl("wait", "--for=condition=Ready", "pod/web", "--timeout=60s")
    root = f"/api/v1/namespaces/{kubectl.namespace}"

    assert "Directory listing" in kubectl("get", "--raw", f"{root}/pods/web/proxy/")
    assert "Directory listing" in kubectl("get", "--raw", f"{root}/pods/http:web:{port}/proxy/?a=b")
    refused = kubectl("get", "--raw", f"{root}/pods/web:1/proxy/", code=1)
    assert "error trying to reach service: dial tcp" in refused
    assert "connection refused" in refused
    if kubectl("get", "pod/web", "-o", "jsonpath={.status.podIP}"):
        assert "Directory listing" in kubectl("get", "--raw", f"{root}/services/web:80/proxy/")
    missing = kubectl("get", "--raw", f"{root}/services/nobody/proxy/", code=1)
    assert 'no endpoints available for service "nobody"' in missing
    kubectl("delete", "pod/web", "--grace-period=1")


def _server_pod(port: int) -> dict[str, object]:
    script = f"cd / && exec {sys.executable} -u -m http.server {port}"
    container = {
        "name": "main",
        "image": "busybox",
        "command": ["sh", "-c", script],
        "ports": [{"containerPort": port}],
        "readinessProbe": {"tcpSocket": {"port": port}, "periodSeconds": 1},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "labels": {"app": "web"}},
        "spec": {"containers": [container], "restartPolicy": "Never"},
    }

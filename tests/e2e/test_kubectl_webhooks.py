"""Admission webhooks through kubectl, called by a running service, by URL and by Service: a Job and its pods are changed.

Only with JOBPLANE_WEBHOOKS=1, as `make test-long` sets it.
"""

import asyncio
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.e2e.kubectl import Kubectl, on_every_version
from tests.webhook_server import WebhookServer, a_webhook, patching, serving

pytestmark = pytest.mark.skipif("JOBPLANE_WEBHOOKS" not in os.environ, reason="only with JOBPLANE_WEBHOOKS=1")
NAME = "reviewer"
ROOT = "admissionregistration.k8s.io/v1"


@contextmanager
def webhook_of(namespace: str) -> Iterator[WebhookServer]:
    """A webhook on all addresses of this machine, in a thread of its own, for a Service of a namespace."""
    over, ready = asyncio.Event(), threading.Event()
    found: list[tuple[WebhookServer, asyncio.AbstractEventLoop]] = []

    async def serve() -> None:
        async with serving("0.0.0.0", f"{NAME}.{namespace}.svc") as made:
            found.append((made, asyncio.get_running_loop()))
            ready.set()
            await over.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert ready.wait(30)
    webhook, loop = found[0]
    try:
        yield webhook
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()


def own_address() -> str:
    """An address of this machine that is not loopback: EndpointSlices have no others."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))
        address: str = probe.getsockname()[0]
        return address


def configuration(kubectl: Kubectl, kind: str, webhook: dict[str, Any]) -> dict[str, Any]:
    selector = {"matchLabels": {"kubernetes.io/metadata.name": kubectl.namespace}}
    return {
        "apiVersion": ROOT,
        "kind": kind,
        "metadata": {"name": f"lab-{kubectl.namespace}"},
        "webhooks": [webhook | {"namespaceSelector": selector}],
    }


def endpoints(webhook: WebhookServer) -> list[dict[str, Any]]:
    metadata = {"name": NAME}
    labels = {"kubernetes.io/service-name": NAME}
    return [
        {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"ports": [{"port": 443}]}},
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": metadata | {"labels": labels},
            "addressType": "IPv4",
            "endpoints": [{"addresses": [own_address()]}],
            "ports": [{"name": "", "port": webhook.port}],
        },
    ]


@on_every_version
def test_a_job_and_its_pods_are_changed_by_url_and_by_service(kubectl: Kubectl) -> None:
    with webhook_of(kubectl.namespace) as webhook:
        _use(kubectl, webhook)


def _use(kubectl: Kubectl, webhook: WebhookServer) -> None:
    label = {"op": "add", "path": "/metadata/labels/team", "value": "lab"}
    webhook.answer = lambda request: (
        {"allowed": "no" not in request["name"], "status": {"message": "not this one"}}
        if webhook.paths[-1].startswith("/validate")
        else patching(label) | {"warnings": ["labelled"]}
    )
    for each in endpoints(webhook):
        kubectl.send("apply", each)
    service = {"namespace": kubectl.namespace, "name": NAME}
    by_service = {"service": service, "caBundle": webhook.client_config()["caBundle"]}
    pods = a_webhook(by_service, "pods")
    pods["rules"][0]["operations"] = ["CREATE"]
    mutating = configuration(kubectl, "MutatingWebhookConfiguration", pods)
    kubectl.send("apply", mutating)
    jobs = a_webhook(webhook.client_config("/validate"), "jobs")
    kubectl.send("apply", configuration(kubectl, "ValidatingWebhookConfiguration", jobs))

    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "pi"},
        "spec": {
            "template": {
                "metadata": {"labels": {"app": "pi"}},
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [{"name": "main", "image": "busybox", "command": ["true"]}],
                },
            }
        },
    }
    kubectl.send("apply", job)
    kubectl("wait", "--for=condition=complete", "job/pi", "--timeout=60s")
    assert kubectl("get", "pods", "-l", "team=lab", "-o", "jsonpath={.items[*].metadata.labels.app}") == "pi"
    refused = kubectl.send("apply", job | {"metadata": {"name": "no"}}, code=1)
    assert 'admission webhook "w.example.com" denied the request: not this one' in refused
    for kind in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"):
        assert kubectl("get", kind, f"lab-{kubectl.namespace}").splitlines()[0].split() == ["NAME", "WEBHOOKS", "AGE"]
        kubectl("delete", kind, f"lab-{kubectl.namespace}")

"""The manifests that an operator ships, read from its source, and changed for a manager that runs outside of the cluster."""

import base64
import copy
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from app.api.auth import certificates
from tests.e2e.kubectl import newest
from tests.operators.objects import Document


def documents(folder: Path, pattern: str = "*.yaml") -> list[Document]:
    """Every document of the files that match, in the order of the files' names."""
    return [each for file in sorted(folder.glob(pattern)) for each in _read(file.read_text())]


def definitions(folder: Path) -> list[Document]:
    return [each for each in documents(folder) if each["kind"] == "CustomResourceDefinition"]


def kustomized(folder: Path) -> list[Document]:
    """What `kubectl apply -k` would apply, in its order."""
    command = [str(newest()), "kustomize", str(folder)]
    made = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    return _read(made)


def _read(text: str) -> list[Document]:
    """By libyaml: Argo's definitions have five million characters, and Python takes a minute for them."""
    return [each for each in yaml.load_all(text, Loader=yaml.CSafeLoader) if each]


class Serving:
    """Certificates of the test's own, in a folder as managers want it (tls.crt, tls.key), for a name of a Service or none."""

    def __init__(self, folder: Path, *hosts: str) -> None:
        made = certificates.ensure(folder, ["127.0.0.1", *hosts])
        self.folder = folder
        self.authority = base64.b64encode(made.ca.read_bytes()).decode()
        for name in ("tls.crt", "tls.key"):
            (folder / name).write_bytes(made.cert.read_bytes())


def by_url(configuration: Document, name: str, port: int, serving: Serving) -> Document:
    """A webhook configuration that calls this machine where it named a Service. `name`: what it is called here."""
    changed = copy.deepcopy(configuration)
    changed["metadata"]["name"] = name
    for config in _client_configs(changed):
        path = config.pop("service")["path"]
        config |= {"url": f"https://127.0.0.1:{port}{path}", "caBundle": serving.authority}
    return changed


def converting(definition: Document, conversion: Document, port: int, serving: Serving) -> Document:
    """A definition with the conversion that a patch gives it, by URL."""
    changed = copy.deepcopy(definition)
    changed["spec"]["conversion"] = copy.deepcopy(conversion)
    config = changed["spec"]["conversion"]["webhook"]["clientConfig"]
    path = config.pop("service")["path"]
    config |= {"url": f"https://127.0.0.1:{port}{path}", "caBundle": serving.authority}
    return changed


def by_service(configuration: Document, name: str, service: str, namespace: str) -> Document:
    """One whose Service has the name that an installation gives it; the path stays. `caBundle` is the operator's to set."""
    changed = copy.deepcopy(configuration)
    changed["metadata"]["name"] = name
    for config in _client_configs(changed):
        config["service"] |= {"name": service, "namespace": namespace}
    return changed


def _client_configs(configuration: Document) -> Iterator[dict[str, Any]]:
    return (webhook["clientConfig"] for webhook in configuration["webhooks"])


def service_outside(name: str, namespace: str, address: str, port: int) -> list[Document]:
    """A Service without a selector, and the EndpointSlice that leads to a process of this machine."""
    metadata = {"name": name, "namespace": namespace}
    return [
        {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"ports": [{"port": 443}]}},
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": metadata | {"labels": {"kubernetes.io/service-name": name}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": [address]}],
            "ports": [{"name": "", "port": port}],
        },
    ]

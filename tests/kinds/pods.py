"""Pods for the tests of the Pod kind, from their wire form."""

import msgspec

from app.kinds.pod.pod import Pod
from app.kinds.pod.pod_defaults import default_pod

MAIN = {"name": "main", "image": "busybox"}


def a_pod(main=None, status=None, metadata=None, **spec):
    """In wire form: `main` adds to the one container, the rest to the spec."""
    body = {"restartPolicy": "Never", "containers": [MAIN | (main or {})]} | spec
    meta = {"name": "p", "namespace": "default"} | (metadata or {})
    return msgspec.convert({"metadata": meta, "spec": body, "status": status or {}}, Pod)


def made(**parts):
    return default_pod(a_pod(**parts))


def said(causes):
    return [f"{cause.field}: {cause.message}" for cause in causes]


def wire(part):
    return msgspec.json.decode(msgspec.json.encode(part))

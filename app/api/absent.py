"""Kinds that Jobplane never has, but that `kubectl cluster-info dump` lists unasked and gives up without: their lists are empty.

No discovery document names them. `app.api.kubernetes` looks here before it says that there is no such path.
"""

from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from app.api.accept import wanted
from app.kinds.errors import shown

_KINDS = {
    ("", "v1", "replicationcontrollers"): "ReplicationController",
    ("apps", "v1", "daemonsets"): "DaemonSet",
    ("apps", "v1", "deployments"): "Deployment",
    ("apps", "v1", "replicasets"): "ReplicaSet",
    ("apps", "v1", "statefulsets"): "StatefulSet",
}


class Absent(NamedTuple):
    """What a request lists. No `namespace`: all of them."""

    group: str
    version: str
    plural: str
    namespace: str


def listed(method: str, path: str) -> Absent | None:
    """What this request lists, if it is one of the kinds that are never there."""
    parts = [part for part in path.split("/") if part]
    if method != "GET" or len(parts) < 3:
        return None
    group, version, *rest = parts[1:] if parts[0] == "apis" else ("", *parts[1:])
    namespace = ""
    if rest[:1] == ["namespaces"] and len(rest) == 3:
        namespace, rest = rest[1], rest[2:]
    if len(rest) != 1 or (group, version, rest[0]) not in _KINDS:
        return None
    return Absent(group, version, rest[0], namespace)


def answer(request: Request, absent: Absent, revision: int) -> Response:
    """An empty list, as old as the store."""
    wanted(request.headers.get("accept"))
    body = {
        "kind": f"{_KINDS[absent[:3]]}List",
        "apiVersion": f"{absent.group}/{absent.version}".removeprefix("/"),
        "metadata": {"resourceVersion": str(revision)},
        "items": [],
    }
    return Response(shown(body), media_type="application/json")

"""Unsupported kinds that clients expect nevertheless: `kubectl apply --prune` fails unless discovery names them, and `kubectl
cluster-info dump` unless they can be listed. Their lists are empty and their watches never send an event.

Only `app.api.resources.routes`, discovery and OpenAPI use them: they are not among `KINDS`, and so are never stored.
"""

from typing import Any

from app.machinery.base import Kind, Object
from app.machinery.errors import ApiError


class Endpoints(Object):
    """Jobplane has none of these: their list is empty, and none can be created."""


class ReplicationController(Object):
    """Jobplane has none of these: their list is empty, and none can be created. It runs Jobs, CronJobs, Deployments and pods."""


class DaemonSet(Object):
    """Jobplane has none of these: their list is empty, and none can be created. It runs Jobs, CronJobs, Deployments and pods."""


class StatefulSet(Object):
    """Jobplane has none of these: their list is empty, and none can be created. It runs Jobs, CronJobs, Deployments and pods."""


class Ingress(Object):
    """Jobplane has none of these: their list is empty, and none can be created."""


def _make_kind(type_: type[Object], group: str, plural: str, *short_names: str, namespaced: bool = True) -> Kind[Any]:
    return Kind(type=type_, group=group, version="v1", plural=plural, short_names=short_names, namespaced=namespaced)


UNSUPPORTED: tuple[Kind[Any], ...] = (
    _make_kind(Endpoints, "", "endpoints", "ep"),
    _make_kind(ReplicationController, "", "replicationcontrollers", "rc"),
    _make_kind(DaemonSet, "apps", "daemonsets", "ds"),
    _make_kind(StatefulSet, "apps", "statefulsets", "sts"),
    _make_kind(Ingress, "networking.k8s.io", "ingresses", "ing"),
)
VERBS = ("delete", "get", "list", "watch")
"""Verbs that are valid when there is no such object."""
_BY_RESOURCE = {(kind.group, kind.version, kind.plural): kind for kind in UNSUPPORTED}


def by_resource(group: str, version: str, plural: str) -> Kind[Any] | None:
    """Return the unsupported kind of a path; None if it is no such kind."""
    return _BY_RESOURCE.get((group, version, plural))


def not_supported_error(kind: Kind[Any], verb: str) -> ApiError:
    """Return the 405 for a verb that would need an object, in Kubernetes' words, with what Jobplane has instead."""
    why = "Jobplane runs Jobs, CronJobs, Deployments and pods, and has none of these"
    message = f'{verb} is not supported on resources of kind "{kind.resource}": {why}'
    return ApiError(405, "MethodNotAllowed", message)

"""Kinds that Jobplane never has, and that clients ask for unasked: `kubectl apply --prune` gives up where discovery does not
name them, and `kubectl cluster-info dump` where they cannot be listed. Their lists are empty and their watches silent.

Nothing but `app.api.resources.routes`, discovery and OpenAPI knows them: they are not among `KINDS`, and so are never stored.
"""

from typing import Any

from app.machinery.base import Kind, Object
from app.machinery.errors import ApiError


class Endpoints(Object):
    """Jobplane has none of these: their list is empty, and none can be created."""


class PersistentVolume(Object):
    """Jobplane has none of these: their list is empty, and none can be created."""


class PersistentVolumeClaim(Object):
    """Jobplane has none of these: their list is empty, and none can be created."""


class ReplicationController(Object):
    """Jobplane has none of these: their list is empty, and none can be created. It runs Jobs, CronJobs and pods."""


class DaemonSet(Object):
    """Jobplane has none of these: their list is empty, and none can be created. It runs Jobs, CronJobs and pods."""


class Deployment(Object):
    """Jobplane has none of these: their list is empty, and none can be created. It runs Jobs, CronJobs and pods."""


class ReplicaSet(Object):
    """Jobplane has none of these: their list is empty, and none can be created. It runs Jobs, CronJobs and pods."""


class StatefulSet(Object):
    """Jobplane has none of these: their list is empty, and none can be created. It runs Jobs, CronJobs and pods."""


class Ingress(Object):
    """Jobplane has none of these: their list is empty, and none can be created."""


def _absent(type_: type[Object], group: str, plural: str, *short_names: str, namespaced: bool = True) -> Kind[Any]:
    return Kind(type=type_, group=group, version="v1", plural=plural, short_names=short_names, namespaced=namespaced)


ABSENT: tuple[Kind[Any], ...] = (
    _absent(Endpoints, "", "endpoints", "ep"),
    _absent(PersistentVolume, "", "persistentvolumes", "pv", namespaced=False),
    _absent(PersistentVolumeClaim, "", "persistentvolumeclaims", "pvc"),
    _absent(ReplicationController, "", "replicationcontrollers", "rc"),
    _absent(DaemonSet, "apps", "daemonsets", "ds"),
    _absent(Deployment, "apps", "deployments", "deploy"),
    _absent(ReplicaSet, "apps", "replicasets", "rs"),
    _absent(StatefulSet, "apps", "statefulsets", "sts"),
    _absent(Ingress, "networking.k8s.io", "ingresses", "ing"),
)
VERBS = ("delete", "get", "list", "watch")
"""What can be done with them: all that finds none."""
_BY_RESOURCE = {(kind.group, kind.version, kind.plural): kind for kind in ABSENT}


def by_resource(group: str, version: str, plural: str) -> Kind[Any] | None:
    """The kind behind a path, if it is one of these."""
    return _BY_RESOURCE.get((group, version, plural))


def refusal(kind: Kind[Any], verb: str) -> ApiError:
    """405 for a verb that would need one, in Kubernetes' sentence and with what is here instead."""
    why = "Jobplane runs Jobs, CronJobs and pods, and has none of these"
    message = f'{verb} is not supported on resources of kind "{kind.resource}": {why}'
    return ApiError(405, "MethodNotAllowed", message)

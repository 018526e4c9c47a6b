"""API discovery: groups, versions and resources, unaggregated and aggregated, built once from the kinds.

`app.api.documents` builds one `Discovery` at start and answers GET /api, /apis, /apis/G, /api/v1 and /apis/G/V from it.
kubectl and every client library read these before anything else.
"""

import re
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

from app.api.http import static_documents
from app.api.http.content_negotiation import ResponseFormat
from app.api.http.static_documents import Document
from app.api.resources import unsupported_kinds
from app.api.resources.eviction import Eviction
from app.api.resources.scale import Scale
from app.api.resources.unsupported_kinds import UNSUPPORTED
from app.api.streams.stream_options import (
    PodAttachOptions,
    PodExecOptions,
    PodPortForwardOptions,
    PodProxyOptions,
    ServiceProxyOptions,
)
from app.kinds.auth.authentication import TokenRequest
from app.kinds.pod.pod_schema import Binding
from app.machinery.base import Kind, Struct

_UNSUPPORTED_VERBS: Mapping[str, tuple[str, ...]] = {"namespaces": ("deletecollection",)}
PROXY_VERBS = ("create", "delete", "get", "patch", "update")
VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


class Subresource(NamedTuple):
    """A subresource. `kind` is (group, version, name) if it differs from the parent's.

    `type` is the struct of its body, or of the options in its query, for OpenAPI.
    """

    name: str
    verbs: tuple[str, ...]
    kind: tuple[str, str, str] | None = None
    type: "type[Struct] | None" = None


class EphemeralResource(NamedTuple):
    """A resource that is computed for each request and never stored: reviews, metrics. No `plural`: an empty group.

    `type` is the struct of its bodies, for OpenAPI.
    """

    group: str
    version: str
    plural: str = ""
    kind: str = ""
    verbs: tuple[str, ...] = ("create",)
    namespaced: bool = False
    type: "type[Struct] | None" = None


STATUS = Subresource("status", ("get", "patch", "update"))
SCALE = Subresource("scale", ("get", "patch", "update"), ("autoscaling", "v1", "Scale"), Scale)
SUBRESOURCES: Mapping[str, tuple[Subresource, ...]] = {
    "namespaces": (Subresource("finalize", ("update",)),),
    "certificatesigningrequests.certificates.k8s.io": (Subresource("approval", ("get", "patch", "update")),),
    "pods": (
        *(
            Subresource(name, ("create", "get"), ("", "v1", options.__name__), options)
            for name, options in (
                ("attach", PodAttachOptions),
                ("exec", PodExecOptions),
                ("portforward", PodPortForwardOptions),
            )
        ),
        Subresource("binding", ("create",), ("", "v1", "Binding"), Binding),
        Subresource("eviction", ("create",), ("policy", "v1", "Eviction"), Eviction),
        Subresource("log", ("get",)),
        Subresource("proxy", PROXY_VERBS, ("", "v1", "PodProxyOptions"), PodProxyOptions),
    ),
    "services": (Subresource("proxy", PROXY_VERBS, ("", "v1", "ServiceProxyOptions"), ServiceProxyOptions),),
    "serviceaccounts": (
        Subresource("token", ("create",), ("authentication.k8s.io", "v1", "TokenRequest"), TokenRequest),
    ),
}


def verbs(kind: Kind[Any]) -> tuple[str, ...]:
    """Return the verbs of a kind."""
    if kind in UNSUPPORTED:
        return unsupported_kinds.VERBS
    return tuple(each for each in VERBS if each not in _UNSUPPORTED_VERBS.get(kind.resource, ()))


def subresources(kind: Kind[Any]) -> tuple[Subresource, ...]:
    """Return the subresources of a kind, sorted by name."""
    own = SUBRESOURCES.get(kind.resource, ())
    status = (STATUS,) if kind.has_status else ()
    return tuple(sorted((*own, *status, SCALE) if kind.scale else (*own, *status)))


class _Resource(NamedTuple):
    """A kind or an ephemeral resource, with what both forms of discovery need."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    verbs: tuple[str, ...]
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    parts: tuple[Subresource, ...] = ()
    hash: str = ""
    singular: str = ""


def _resources(kinds: Iterable[Kind[Any]], virtual: Iterable[EphemeralResource]) -> list[_Resource]:
    stored = [
        _Resource(
            kind.group,
            kind.version,
            kind.plural,
            kind.name,
            kind.namespaced,
            verbs(kind),
            kind.short_names,
            kind.categories,
            subresources(kind),
            _storage_hash(kind),
            kind.singular,
        )
        for kind in kinds
    ]
    taken = {each[:3] for each in stored}
    known = {each[:2] for each in stored}
    answered = [
        _Resource(each.group, each.version, each.plural, each.kind, each.namespaced, each.verbs)
        for each in virtual
        if each[:3] not in taken and (each.plural or each[:2] not in known)
    ]
    return sorted(stored + answered, key=_sort_key)


# As Kubernetes ranks groups: where a short name means several resources, the first group has it. Others come after these.
_RANKS = (
    "",
    "apps",
    "events.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "networking.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "storage.k8s.io",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "scheduling.k8s.io",
    "coordination.k8s.io",
    "node.k8s.io",
    "discovery.k8s.io",
)
_VERSION = re.compile(r"v(\d+)(?:(alpha|beta)(\d+))?")


def _sort_key(each: _Resource) -> tuple[Any, ...]:
    """Return the sort key: rank of the group, stable and newer versions first, then name."""
    rank = _RANKS.index(each.group) if each.group in _RANKS else len(_RANKS)
    match = _VERSION.fullmatch(each.version)
    number, stage, trial = match.groups() if match else ("0", "alpha", "0")
    stages = ("alpha", "beta", None)
    return rank, each.group, -stages.index(stage), -int(number), -int(trial or 0), each.version, each.plural


def _storage_hash(kind: Kind[Any]) -> str:
    """Return the storageVersionHash as Kubernetes computes it: constant while the storage version is."""
    kind = kind.storage if kind.definition and kind.storage else kind
    digest = sha256(f"{kind.group}/{kind.version}/{kind.name}".encode()).digest()
    return b64encode(digest[:8]).decode()


class Discovery:
    """All discovery documents, ready as bytes."""

    def __init__(self, kinds: Sequence[Kind[Any]], virtual: Sequence[EphemeralResource] = ()) -> None:
        groups: dict[str, dict[str, list[_Resource]]] = {}
        for each in _resources(kinds, virtual):
            groups.setdefault(each.group, {}).setdefault(each.version, []).append(each)
        self._plain = {path: static_documents.encode_document(body) for path, body in _plain_documents(groups).items()}
        core = {name: versions for name, versions in groups.items() if name == ""}
        named = {name: versions for name, versions in groups.items() if name != ""}
        self._aggregated = {
            (path, version): static_documents.encode_document(
                _aggregated_document(part, version), ResponseFormat("discovery", version).content_type
            )
            for path, part in (("/api", core), ("/apis", named))
            for version in ("v2", "v2beta1")
        }

    def document(self, path: str, wanted: ResponseFormat) -> Document | None:
        """Return the document of `path`, with or without a trailing slash; None if there is none."""
        path = path.rstrip("/")
        if wanted.form == "discovery" and (path, wanted.version) in self._aggregated:
            return self._aggregated[path, wanted.version]
        return self._plain.get(path)

    @property
    def paths(self) -> tuple[str, ...]:
        """Every path with a document, without a trailing slash."""
        return tuple(self._plain)


_Groups = dict[str, dict[str, list[_Resource]]]


def _plain_documents(groups: _Groups) -> dict[str, Any]:
    found: dict[str, Any] = {
        "/api": {
            "kind": "APIVersions",
            "versions": sorted(groups.get("", {})),
            "serverAddressByClientCIDRs": [],
        },
        "/apis": {
            "kind": "APIGroupList",
            "apiVersion": "v1",
            "groups": [_group(name, versions) for name, versions in groups.items() if name],
        },
    }
    for name, versions in groups.items():
        if name:
            found[f"/apis/{name}"] = {"kind": "APIGroup", "apiVersion": "v1", **_group(name, versions)}
        for version, resources in versions.items():
            path = f"/apis/{name}/{version}" if name else f"/api/{version}"
            found[path] = _resource_list(name, version, resources)
    return found


def _group(name: str, versions: Iterable[str]) -> dict[str, Any]:
    listed = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def _resource_list(group: str, version: str, resources: list[_Resource]) -> dict[str, Any]:
    listed = [entry for each in resources if each.plural for entry in _plain_entries(each)]
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{group}/{version}" if group else version,
        "resources": listed,
    }


def _plain_entries(resource: _Resource) -> list[dict[str, Any]]:
    entry = {
        "name": resource.plural,
        "singularName": resource.singular or resource.kind.lower(),
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": resource.verbs,
    }
    named = {
        "shortNames": resource.short_names,
        "categories": resource.categories,
        "storageVersionHash": resource.hash,
    }
    return [entry | {name: value for name, value in named.items() if value}] + [
        _plain_part(resource, part) for part in resource.parts
    ]


def _plain_part(resource: _Resource, part: Subresource) -> dict[str, Any]:
    group, version, kind = part.kind or (resource.group, resource.version, resource.kind)
    foreign = {"group": group, "version": version} if group != resource.group else {}
    return {
        "name": f"{resource.plural}/{part.name}",
        "singularName": "",
        "namespaced": resource.namespaced,
        **foreign,
        "kind": kind,
        "verbs": part.verbs,
    }


def _aggregated_document(groups: _Groups, version: str) -> dict[str, Any]:
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": f"apidiscovery.k8s.io/{version}",
        "metadata": {},
        "items": [
            {
                "metadata": {"name": name, "creationTimestamp": None},
                "versions": [_aggregated_version(each, resources) for each, resources in versions.items()],
            }
            for name, versions in groups.items()
        ],
    }


def _aggregated_version(version: str, resources: list[_Resource]) -> dict[str, Any]:
    listed = [_aggregated_entry(each) for each in resources if each.plural]
    return {"version": version, "resources": listed, "freshness": "Current"}


def _aggregated_entry(resource: _Resource) -> dict[str, Any]:
    optional = {
        "shortNames": resource.short_names,
        "categories": resource.categories,
        "subresources": [_aggregated_part(resource, part) for part in resource.parts],
    }
    return {
        "resource": resource.plural,
        "responseKind": {"group": resource.group, "version": resource.version, "kind": resource.kind},
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular or resource.kind.lower(),
        "verbs": resource.verbs,
    } | {name: value for name, value in optional.items() if value}


def _aggregated_part(resource: _Resource, part: Subresource) -> dict[str, Any]:
    group, version, kind = part.kind or (resource.group, resource.version, resource.kind)
    return {
        "subresource": part.name,
        "responseKind": {"group": group, "version": version, "kind": kind},
        "verbs": part.verbs,
    }

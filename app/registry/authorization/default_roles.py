"""Default cluster roles and bindings, as Kubernetes has them for the kinds that there are here.

`app.registry.bootstrap` makes what is missing of them.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from app.kinds.auth.cluster_role import AggregationRule, ClusterRole
from app.kinds.auth.cluster_role_binding import ClusterRoleBinding
from app.kinds.auth.rbac import GROUP, USER_GROUP, PolicyRule, RoleRef, Subject
from app.machinery.base import LabelSelector, Object, ObjectMeta
from app.machinery.feature_gates import DEFAULTS, GENERIC_WORKLOAD, Features
from app.plans.admission.rbac import EVERYTHING, rules_of

_LABELS = {"kubernetes.io/bootstrapping": "rbac-defaults"}
UPDATED = "rbac.authorization.kubernetes.io/autoupdate"  # "false" keeps the server from adding what a role lacks
_CERTIFICATES = "certificates.k8s.io"
_READ = ("get", "list", "watch")
_WRITE = ("create", "delete", "deletecollection", "patch", "update")
_AUTHENTICATED, _UNAUTHENTICATED = "system:authenticated", "system:unauthenticated"
_HEALTH = ("/healthz", "/livez", "/readyz")
_STREAMS = ("pods/attach", "pods/exec", "pods/portforward", "pods/proxy")


def objects(features: Features = DEFAULTS) -> list[Object]:
    """All of them; the rules of those that collect others are filled in."""
    roles = {role.metadata.name: role for role in (*_plain_roles(features), *_collecting_roles())}
    return [*(replace(role, rules=rules_of(role, roles)) for role in roles.values()), *_bindings()]


def _plain_roles(features: Features) -> Iterable[ClusterRole]:
    has_groups = GENERIC_WORKLOAD in features
    yield _role("cluster-admin", EVERYTHING)
    yield _role("system:aggregate-to-admin", _ADMIN, to="admin")
    yield _role("system:aggregate-to-edit", [*_EDIT, *(_EDIT_GROUPS if has_groups else ())], to="edit")
    yield _role("system:aggregate-to-view", [*_VIEW, *(_VIEW_GROUPS if has_groups else ())], to="view")
    yield _role("system:basic-user", _ABOUT_ONESELF)
    yield _role(
        "system:discovery",
        [_paths("/api", "/api/*", "/apis", "/apis/*", *_HEALTH, "/openapi", "/openapi/*", *_VERSION)],
    )
    yield _role("system:public-info-viewer", [_paths(*_HEALTH, *_VERSION)])
    yield _role(
        "system:monitoring", [_paths(*_HEALTH, *(f"{path}/*" for path in _HEALTH), "/metrics", "/metrics/slis")]
    )
    yield _role("system:auth-delegator", _DELEGATED)
    for signer in ("kube-apiserver-client", "kube-apiserver-client-kubelet"):
        rule = PolicyRule(
            verbs=("approve",),
            api_groups=(_CERTIFICATES,),
            resources=("signers",),
            resource_names=(f"kubernetes.io/{signer}",),
        )
        yield _role(f"system:certificates.k8s.io:{signer}-approver", [rule])


def _collecting_roles() -> Iterable[ClusterRole]:
    """Yield the roles that collect others: admin collects edit, and edit collects view."""
    yield _collecting("admin")
    yield _collecting("edit", to="admin")
    yield _collecting("view", to="edit")


def _bindings() -> Iterable[ClusterRoleBinding]:
    yield _binding("cluster-admin", "system:masters")
    yield _binding("system:basic-user", _AUTHENTICATED)
    yield _binding("system:discovery", _AUTHENTICATED)
    yield _binding("system:public-info-viewer", _AUTHENTICATED, _UNAUTHENTICATED)
    yield _binding("system:monitoring", "system:monitoring")


def _rule(verbs: tuple[str, ...], group: str, *resources: str) -> PolicyRule:
    return PolicyRule(verbs=verbs, api_groups=(group,), resources=resources)


def _paths(*paths: str) -> PolicyRule:
    return PolicyRule(verbs=("get",), non_resource_urls=paths)


_VERSION = ("/version", "/version/")
_ADMIN = [
    _rule(("create",), "authorization.k8s.io", "localsubjectaccessreviews"),
    _rule((*_WRITE, *_READ), GROUP, "rolebindings", "roles"),
]
_ABSENT = ("daemonsets", "statefulsets")  # of which there are none: `app.api.resources.unsupported_kinds`
_APPS = (*_ABSENT, "deployments", "deployments/scale", "replicasets", "replicasets/scale")
_EDIT = [
    _rule(_READ, "", *_STREAMS, "secrets", "services/proxy"),
    _rule(("impersonate",), "", "serviceaccounts"),
    _rule(_WRITE, "", "pods", *_STREAMS),
    _rule(("create",), "", "pods/eviction"),
    _rule(_WRITE, "", "configmaps", "events", "persistentvolumeclaims", "secrets", "serviceaccounts", "services"),
    _rule(_WRITE, "", "replicationcontrollers", "services/proxy"),
    _rule(_WRITE, "apps", *_APPS),
    _rule(_WRITE, "networking.k8s.io", "ingresses"),
    _rule(("create",), "", "serviceaccounts/token"),
    _rule(_WRITE, "batch", "cronjobs", "jobs"),
    _rule(("create",), "history.jobplane.dev", "jobs/rerun"),
    _rule((*_WRITE, *_READ), "coordination.k8s.io", "leases"),
]
_VIEW = [
    _rule(_READ, "", "configmaps", "endpoints", "persistentvolumeclaims", "pods", "serviceaccounts", "services"),
    _rule(_READ, "", "persistentvolumeclaims/status"),
    _rule(_READ, "", "bindings", "events", "limitranges", "namespaces/status", "pods/log", "pods/status"),
    _rule(_READ, "", "resourcequotas", "resourcequotas/status"),
    _rule(_READ, "", "namespaces", "replicationcontrollers"),
    _rule(_READ, "apps", *_APPS, "deployments/status", "replicasets/status"),
    _rule(_READ, "networking.k8s.io", "ingresses"),
    _rule(_READ, "batch", "cronjobs", "cronjobs/status", "jobs", "jobs/status"),
    _rule(_READ, "metrics.k8s.io", "nodes", "pods"),
    _rule(_READ, "jobplane.dev", "localqueues", "localqueues/status"),
    _rule(_READ, "history.jobplane.dev", "jobs"),
]
_EDIT_GROUPS = [_rule(_WRITE, "scheduling.k8s.io", "podgroups", "workloads")]
_VIEW_GROUPS = [_rule(_READ, "scheduling.k8s.io", "podgroups", "podgroups/status", "workloads")]
_ABOUT_ONESELF = [
    _rule(("create",), "authorization.k8s.io", "selfsubjectaccessreviews", "selfsubjectrulesreviews"),
    _rule(("create",), "authentication.k8s.io", "selfsubjectreviews"),
]
_DELEGATED = [
    _rule(("create",), "authentication.k8s.io", "tokenreviews"),
    _rule(("create",), "authorization.k8s.io", "subjectaccessreviews"),
]


def _collected_by(name: str) -> dict[str, str]:
    return {f"rbac.authorization.k8s.io/aggregate-to-{name}": "true"} if name else {}


def _meta(name: str, labels: dict[str, str]) -> ObjectMeta:
    return ObjectMeta(name=name, labels=_LABELS | labels, annotations={UPDATED: "true"})


def _role(name: str, rules: Iterable[PolicyRule], to: str = "") -> ClusterRole:
    return ClusterRole(metadata=_meta(name, _collected_by(to)), rules=tuple(rules))


def _collecting(name: str, to: str = "") -> ClusterRole:
    selector = LabelSelector(match_labels=_collected_by(name))
    collected = AggregationRule(cluster_role_selectors=(selector,))
    return ClusterRole(metadata=_meta(name, _collected_by(to)), aggregation_rule=collected)


def _binding(role: str, *groups: str) -> ClusterRoleBinding:
    return ClusterRoleBinding(
        metadata=_meta(role, {}),
        role_ref=RoleRef(api_group=GROUP, kind="ClusterRole", name=role),
        subjects=tuple(Subject(kind=USER_GROUP, api_group=GROUP, name=group) for group in groups),
    )

"""The ClusterRole kind: what may be done anywhere, or in whichever namespace a binding grants it."""

from typing import Annotated

from app.kinds.auth import rbac
from app.kinds.pod.placement_validation import validate_selector
from app.machinery.base import Kind, LabelSelector, Object, Struct, at
from app.machinery.errors import Cause, required


class AggregationRule(Struct):
    """Makes a role the union of others."""

    cluster_role_selectors: Annotated[
        tuple[LabelSelector, ...], at(1, "The rules of cluster roles that any of these selects are this role's rules.")
    ] = ()


class ClusterRole(Object):
    """What may be done anywhere, or in one namespace, by those whom a binding grants it."""

    rules: Annotated[tuple[rbac.PolicyRule, ...], at(2, "Each is something that may be done.")] = ()
    aggregation_rule: Annotated[
        AggregationRule | None, at(3, "If set, the rules are collected from other roles, and written by the server.")
    ] = None


def validate(role: ClusterRole) -> list[Cause]:
    return [*rbac.faults_in_rules(role.rules, namespaced=False), *_faults_in_aggregation(role.aggregation_rule)]


def _faults_in_aggregation(aggregation: AggregationRule | None) -> list[Cause]:
    if aggregation is None:
        return []
    path = "aggregationRule.clusterRoleSelectors"
    if not aggregation.cluster_role_selectors:
        return [required(path, "at least one clusterRoleSelector required if aggregationRule is non-nil")]
    return [
        cause
        for index, selector in enumerate(aggregation.cluster_role_selectors)
        for cause in validate_selector(selector, f"{path}[{index}]")
    ]


KIND = Kind(
    type=ClusterRole,
    group=rbac.GROUP,
    version="v1",
    plural="clusterroles",
    namespaced=False,
    validate=validate,
    columns=rbac.ROLE_COLUMNS,
    row=rbac.role_row,
    name_format="path",
    example="""\
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: node-watcher
  labels:
    team: operations
rules:
- apiGroups: [""]
  resources: ["nodes"]
  verbs: ["get", "list", "watch"]
- nonResourceURLs: ["/metrics"]
  verbs: ["get"]
""",
)

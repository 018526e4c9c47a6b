"""The ClusterRole kind: what may be done anywhere, or in whichever namespace a binding grants it."""

from app.kinds.auth import rbac
from app.kinds.auth.rbac_schema import AggregationRule, ClusterRole
from app.kinds.pod.placement_validation import validate_selector
from app.machinery.base import Kind
from app.machinery.errors import Cause, required

__all__ = ["KIND", "AggregationRule", "ClusterRole", "validate"]


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

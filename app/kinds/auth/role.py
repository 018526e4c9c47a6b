"""The Role kind: what may be done in one namespace."""

from app.kinds.auth import rbac
from app.kinds.auth.rbac_schema import Role
from app.machinery.base import Kind
from app.machinery.errors import Cause

__all__ = ["KIND", "Role", "validate"]


def validate(role: Role) -> list[Cause]:
    return [*rbac.faults_in_rules(role.rules, namespaced=True)]


KIND = Kind(
    type=Role,
    group=rbac.GROUP,
    version="v1",
    plural="roles",
    validate=validate,
    columns=rbac.ROLE_COLUMNS,
    row=rbac.role_row,
    name_format="path",
    example="""\
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: job-runner
rules:
- apiGroups: ["batch"]
  resources: ["jobs"]
  verbs: ["get", "list", "watch", "create", "delete"]
- apiGroups: [""]
  resources: ["pods", "pods/log"]
  verbs: ["get", "list", "watch"]
""",
)

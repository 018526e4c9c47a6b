"""The Role kind: what may be done in one namespace."""

from typing import Annotated

from app.kinds.auth import rbac
from app.machinery.base import Kind, Object, at
from app.machinery.errors import Cause


class Role(Object):
    """What may be done in one namespace, by those whom a binding grants it."""

    rules: Annotated[tuple[rbac.PolicyRule, ...], at(2, "Each is something that may be done.")] = ()


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

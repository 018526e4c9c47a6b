"""The RoleBinding kind: grants a role in one namespace."""

from app.kinds.auth import rbac
from app.kinds.auth.rbac_schema import RoleBinding
from app.machinery.base import Kind
from app.machinery.errors import Cause

__all__ = ["KIND", "RoleBinding", "validate"]


def validate(binding: RoleBinding) -> list[Cause]:
    return rbac.faults_in_binding(binding, namespaced=True)


KIND = Kind(
    type=RoleBinding,
    group=rbac.GROUP,
    version="v1",
    plural="rolebindings",
    prepare=rbac.prepare_binding,
    validate=validate,
    validate_update=rbac.changed_role,
    columns=rbac.BINDING_COLUMNS,
    row=rbac.binding_row,
    name_format="path",
    example="""\
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: physicists-edit
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: edit
subjects:
- kind: Group
  apiGroup: rbac.authorization.k8s.io
  name: physicists
- kind: ServiceAccount
  name: builder
  namespace: default
""",
)

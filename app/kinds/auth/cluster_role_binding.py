"""The ClusterRoleBinding kind: grants a cluster role everywhere."""

from app.kinds.auth import rbac
from app.kinds.auth.rbac_schema import ClusterRoleBinding
from app.machinery.base import Kind
from app.machinery.errors import Cause

__all__ = ["KIND", "ClusterRoleBinding", "validate"]


def validate(binding: ClusterRoleBinding) -> list[Cause]:
    return rbac.faults_in_binding(binding, namespaced=False)


KIND = Kind(
    type=ClusterRoleBinding,
    group=rbac.GROUP,
    version="v1",
    plural="clusterrolebindings",
    namespaced=False,
    prepare=rbac.prepare_binding,
    validate=validate,
    validate_update=rbac.changed_role,
    columns=rbac.BINDING_COLUMNS,
    row=rbac.binding_row,
    name_format="path",
    example="""\
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: operators-watch-nodes
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: node-watcher
subjects:
- kind: Group
  apiGroup: rbac.authorization.k8s.io
  name: operators
""",
)

"""RBAC escalation: no user grants rights that they do not have. Checks every write of a role or binding, by
`certificate_requests` those of a CertificateSigningRequest, and by `node_restriction` a node's writes of itself.

Called by `collection` and `single_object`.

Administrators may grant all; so may those with the verb `escalate` on roles, or `bind` on the role that a binding names.
"""

from collections.abc import Callable, Sequence
from typing import cast

from msgspec.structs import replace

from app.api.auth import certificate_requests, node_restriction
from app.api.auth.authenticator import MASTERS, Action, User, may
from app.kinds.auth import certificate_signing_request, cluster_role, cluster_role_binding, rbac, role, role_binding
from app.kinds.auth.cluster_role import ClusterRole
from app.kinds.auth.role import Role
from app.kinds.core.node import KIND as NODES
from app.machinery.base import Kind, Object
from app.machinery.errors import forbidden_error, not_found
from app.plans.admission import rbac as access
from app.plans.admission.rbac import Access, Policies
from app.registry.verbs.objects import Edit, Registry

MOST_STEPS = 5_000_000  # of one comparison of rules, some tenths of a second
Check = Callable[[Object, Object | None], None]
"""(new, old or None): raises 403 if the user does not have what they grant."""
_ROLES = {role.KIND.resource, cluster_role.KIND.resource}
_BINDINGS = {role_binding.KIND.resource, cluster_role_binding.KIND.resource}


async def escalation_check(registry: Registry, user: User, kind: Kind, namespace: str, name: str = "") -> Check | None:
    """The check of a write of this kind; None, as almost always, if there is none."""
    if kind.resource == NODES.resource and node_restriction.is_restricted(user):
        return node_restriction.check
    if kind.resource == certificate_signing_request.KIND.resource:
        return certificate_requests.WriteCheck(user, await registry.policy.rights.of(user.name, user.groups))
    if kind.resource not in _ROLES | _BINDINGS or MASTERS in user.groups:
        return None
    rights = await registry.policy.rights.of(user.name, user.groups)
    grantor = _Grantor(user, rights, await registry.policy.rights.policies(), kind, namespace)
    if kind.resource in _BINDINGS:
        return grantor.check_binding
    escalate = Action("escalate", kind.group, kind.plural, "", namespace, name)
    return None if grantor.may(escalate) else grantor.check_role


def with_check(check: Check | None, change: Edit) -> Edit:
    """The same change, refused with 403 if it grants too much."""
    if check is None:
        return change

    def changed(old: Object) -> Object:
        new = change(old)
        check(new, old)
        return new

    return changed


class _Grantor:
    def __init__(self, user: User, rights: Access, policies: Policies, kind: Kind, namespace: str) -> None:
        self._user = user
        self._rights = rights
        self._policies = policies
        self._kind = kind
        self._namespace = namespace

    def may(self, action: Action) -> bool:
        return may(self._user, action) or self._rights.allowing(action) is not None

    def check_role(self, new: Object, old: Object | None) -> None:
        if _changes_only_owners(new, old):
            return
        changed, before = cast("Role | ClusterRole", new), cast("Role | ClusterRole | None", old)
        self._check_rules(new, old, changed.rules)
        if (_aggregates(changed) or _aggregates(before)) and access.find_uncovered(
            self._own_rules(), access.EVERYTHING
        ):
            raise self._refusal(new, old, "must have cluster-admin privileges to use the aggregationRule")

    def check_binding(self, new: Object, old: Object | None) -> None:
        if _changes_only_owners(new, old):
            return
        role_ref = rbac.prepare_binding(new).role_ref
        plural = "roles" if role_ref.kind == "Role" else "clusterroles"
        if self.may(Action("bind", rbac.GROUP, plural, "", self._namespace, role_ref.name)):
            return
        rules = self._policies.rules(role_ref, self._namespace)
        if rules is None:
            raise not_found(f"{plural}.{rbac.GROUP}", role_ref.name)
        self._check_rules(new, old, rules)

    def _check_rules(self, new: Object, old: Object | None, rules: Sequence[rbac.PolicyRule]) -> None:
        held = self._own_rules()
        if not access.find_uncovered(held, access.EVERYTHING):
            return
        if access.cost(held, rules) > MOST_STEPS:
            why = "its rules have too many combinations of verb, API group, resource and name to be checked: split them up"
            raise self._refusal(new, old, why)
        if missing := access.find_uncovered(held, rules):
            raise self._refusal(new, old, access.describe_escalation(self._user.name, self._user.groups, missing))

    def _own_rules(self) -> list[rbac.PolicyRule]:
        return self._rights.rules(self._namespace)

    def _refusal(self, new: Object, old: Object | None, why: str) -> Exception:
        return forbidden_error(self._kind.resource, (old or new).metadata.name, why)


def _aggregates(role: Role | ClusterRole | None) -> bool:
    return isinstance(role, ClusterRole) and role.aggregation_rule is not None


def _changes_only_owners(new: Object, old: Object | None) -> bool:
    """Return whether a write changes nothing but owners and finalizers, as a garbage collector does."""
    if old is None:
        return False
    fields = ("owner_references", "finalizers", "managed_fields")
    metadata = replace(new.metadata, **{name: getattr(old.metadata, name) for name in fields})
    return replace(new, metadata=metadata) == old

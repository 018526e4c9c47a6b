"""ClusterRole aggregation controller: writes the collected rules into roles with an aggregationRule, for people to read.

Rights do not wait for it: they are worked out from the roles themselves.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import cast

from msgspec.structs import replace

from app.controllers.planned_write import PlannedWrite
from app.kinds.auth.cluster_role import KIND as CLUSTER_ROLES
from app.kinds.auth.cluster_role import ClusterRole
from app.plans.admission.rbac import rules_of
from app.plans.plan import Plan, Update
from app.store import Key, Mirror


class ClusterRoleController:
    component = "clusterrole-aggregation-controller"
    kinds = frozenset({CLUSTER_ROLES.resource})

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror

    def on_event(self, key: Key, *_: object) -> Iterable[Key]:
        return self.enqueue_all() if key.kind == CLUSTER_ROLES.resource else []

    def enqueue_all(self) -> Iterable[Key]:
        """The roles that collect; there are few."""
        return [_key(name) for name, role in self._roles().items() if role.aggregation_rule is not None]

    def reconcile(self, key: Key, _: datetime) -> Sequence[PlannedWrite]:
        roles = self._roles()
        role = roles.get(key.name)
        if role is None or role.metadata.deletion_timestamp is not None:
            return []
        rules = rules_of(role, roles)
        return [] if rules == role.rules else [PlannedWrite(Plan((Update(replace(role, rules=rules), role),)))]

    def _roles(self) -> dict[str, ClusterRole]:
        return {role.metadata.name: cast("ClusterRole", role) for role in self._mirror.all(CLUSTER_ROLES.resource)}


def _key(name: str) -> Key:
    return Key(CLUSTER_ROLES.resource, "", name)

"""RBAC cache: what each user may, computed once and kept until a role or binding changes. Called before most requests.

As new as the policy's mirror: what this process has written counts at once, what others have written when the feed tells.
"""

from collections.abc import Awaitable, Callable
from typing import Any, cast

from app.kinds.auth.cluster_role import KIND as CLUSTER_ROLES
from app.kinds.auth.cluster_role_binding import KIND as CLUSTER_ROLE_BINDINGS
from app.kinds.auth.role import KIND as ROLES
from app.kinds.auth.role_binding import KIND as ROLE_BINDINGS
from app.plans.admission.rbac import Access, Policies
from app.store import Key, Mirror

_KINDS = frozenset(kind.resource for kind in (ROLES, CLUSTER_ROLES, ROLE_BINDINGS, CLUSTER_ROLE_BINDINGS))
_MOST = 10_000  # users remembered at once
_MOST_GROUPS = 100  # of a user that is remembered: whoever reviews access may name any number


class AccessCache:
    def __init__(self, mirror: Callable[[], Awaitable[Mirror]]) -> None:
        self._ask = mirror
        self._mirror: Mirror | None = None
        self._policies: Policies | None = None
        self._known: dict[tuple[str, tuple[str, ...]], Access] = {}

    async def of(self, user: str, groups: tuple[str, ...]) -> Access:
        """All that the user may."""
        policies = await self.policies()
        access = self._known.get((user, groups))
        if access is None:
            access = policies.access(user, groups)
            if len(groups) > _MOST_GROUPS:
                return access
            if len(self._known) >= _MOST:
                self._known.clear()
            self._known[user, groups] = access
        return access

    async def policies(self) -> Policies:
        """The roles and bindings as they are now."""
        mirror = await self._ask()
        if mirror is not self._mirror:
            self._mirror = mirror
            mirror.listen(self._changed)
            self._forget()
        if self._policies is None:
            self._policies = policies_of(mirror)
        return self._policies

    def _changed(self, key: Key, *_: object) -> None:
        if key.kind in _KINDS:
            self._forget()

    def _forget(self) -> None:
        self._policies = None
        self._known = {}


def policies_of(mirror: Mirror) -> Policies:
    """The roles and bindings in a mirror."""
    roles, cluster_roles, *bindings = (
        cast("Any", mirror.all(kind.resource)) for kind in (ROLES, CLUSTER_ROLES, ROLE_BINDINGS, CLUSTER_ROLE_BINDINGS)
    )
    return Policies(roles, cluster_roles, [each for some in bindings for each in some])

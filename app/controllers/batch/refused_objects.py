"""Refused objects: those that a quota or another rule refused are looked at again when that rule changes.

Used by the controllers that create what rules may refuse. What an object remembers of it is in its annotation.
"""

from collections import defaultdict
from collections.abc import Iterable

from app.kinds.core.namespace import KIND as NAMESPACES
from app.machinery.base import Object
from app.plans.admission import refusals, resource_quota
from app.store import Key


class Refused:
    """Keys by namespace, of the objects of one kind."""

    def __init__(self) -> None:
        self._keys: defaultdict[str, set[Key]] = defaultdict(set)

    def note(self, key: Key, obj: Object | None) -> None:
        if obj is not None and refusals.ANNOTATION in obj.metadata.annotations:
            self._keys[key.namespace].add(key)
        elif key.namespace in self._keys:
            self._keys[key.namespace].discard(key)

    def on_event(self, rule: Key, before: Object | None, now: Object | None) -> Iterable[Key]:
        """Those that wait for a rule that changes so: in its namespace or, for a rule of all, in any."""
        if rule.kind == NAMESPACES.resource:  # its labels are the rule
            changed = before is None or now is None or before.metadata.labels != now.metadata.labels
            return list(self._keys.get(rule.name, ())) if changed else []
        if not resource_quota.may_admit_more(before, now):
            return []
        if rule.namespace:
            return list(self._keys.get(rule.namespace, ()))
        return [key for keys in self._keys.values() for key in keys]

"""Refused objects: those that a quota or another rule refused are looked at again when that rule changes.

Used by the controllers that create what rules may refuse. What an object remembers of it is in its annotation.
"""

from collections import defaultdict
from collections.abc import Iterable

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

    def on_event(self, namespace: str, before: Object | None, now: Object | None) -> Iterable[Key]:
        """Those that wait for a rule that changes so: in its namespace or, for a rule of all, in any."""
        if not resource_quota.may_admit_more(before, now):
            return []
        if namespace:
            return list(self._keys.get(namespace, ()))
        return [key for keys in self._keys.values() for key in keys]

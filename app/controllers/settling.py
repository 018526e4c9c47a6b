"""Settling: which changes are no reason to look at a key again, because a plan that settles it wrote them. Used by the runner."""

from collections.abc import Iterable

from app.machinery.base import Object
from app.store import MUST_NOT_EXIST, Key, Write


class Settling:
    """What is being written by plans after which there is nothing to do (`app.plans.plan.Plan.is_settled`)."""

    def __init__(self) -> None:
        self._versions: dict[Key, dict[Key, str]] = {}  # by key: the resourceVersions that its plan replaces
        self._passed_over: set[Key] = set()

    def begin(self, key: Key, writes: Iterable[Write]) -> None:
        """The plan of a key is about to be committed."""
        self._versions[key] = {each.key: str(each.expected) for each in writes if each.change != "G"}

    def passes_over(self, key: Key, changed: Key, before: Object | None) -> bool:
        """Return whether a change is what the plan of a key wrote. If another wrote in its place, the plan is refused."""
        versions = self._versions.get(key)
        if versions is None:
            return False
        is_own = versions.get(changed) == (str(MUST_NOT_EXIST) if before is None else before.metadata.resource_version)
        if is_own:
            self._passed_over.add(key)
        return is_own

    def end(self, key: Key, *, is_done: bool) -> bool:
        """Return whether the key is to be looked at: a change was passed over, and the plan is not known to be carried out."""
        was_passed_over = key in self._passed_over
        self._versions.pop(key, None)
        self._passed_over.discard(key)
        return was_passed_over and not is_done

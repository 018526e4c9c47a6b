"""Own writes of settled plans (`app.plans.plan.Plan.is_settled`): changes that need no sync of their key. Used by the runner."""

from collections.abc import Iterable

from app.machinery.base import Object
from app.store import MUST_NOT_EXIST, Key, Write


class OwnWrites:
    """The writes of settled plans, from before their commit until the sync has ended."""

    def __init__(self) -> None:
        self._versions: dict[Key, dict[Key, str]] = {}  # by key: the resourceVersions that its plan replaces
        self._skipped: set[Key] = set()

    def begin(self, key: Key, writes: Iterable[Write]) -> None:
        """The plan of a key is about to be committed."""
        self._versions[key] = {each.key: str(each.expected) for each in writes if each.change != "G"}

    def skips(self, key: Key, changed: Key, before: Object | None) -> bool:
        """Return whether the change of an object needs no sync of `key`, because the plan of `key` replaces that version.

        If another process wrote in its place, the plan is refused, and `end` says so.
        """
        versions = self._versions.get(key)
        if versions is None:
            return False
        is_own = versions.get(changed) == (str(MUST_NOT_EXIST) if before is None else before.metadata.resource_version)
        if is_own:
            self._skipped.add(key)
        return is_own

    def end(self, key: Key, *, is_done: bool) -> bool:
        """Return whether the key needs a sync after all: a change was skipped, and the plan may not be carried out."""
        was_skipped = key in self._skipped
        self._versions.pop(key, None)
        self._skipped.discard(key)
        return was_skipped and not is_done

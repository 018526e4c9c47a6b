"""Reinvocation: which mutating webhooks are called once more, because a later one changed the object. Pure."""

from app.plans.admission.webhooks.matching import Hook


class Reinvocation:
    """Follows one write through its mutating webhooks: all in the first round, those due again in the second."""

    def __init__(self) -> None:
        self._called: set[str] = set()  # those that may be called again, of which none was since the last change
        self._due: set[str] = set()

    def note(self, hook: Hook, *, changed: bool) -> None:
        """Note that a webhook was called, and whether it changed the object."""
        if changed:
            self._due |= self._called
            self._called.clear()
        if getattr(hook.webhook, "reinvocation_policy", None) == "IfNeeded":
            self._called.add(hook.key)

    def is_due(self, hook: Hook) -> bool:
        return hook.key in self._due

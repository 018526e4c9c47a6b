"""What the pods of each namespace take up, as they are placed and unplaced. A cluster keeps one while there are queues."""

from collections.abc import Mapping

from app.kinds.pod.pod_resources import Amounts

_NOTHING: Mapping[str, int] = {}


class NamespaceUsage:
    def __init__(self) -> None:
        self._used: dict[str, Amounts] = {}

    def count(self, namespace: str, needs: Amounts, sign: int) -> None:
        used = self._used.setdefault(namespace, {})
        for name, count in needs.items():
            used[name] = used.get(name, 0) + sign * count

    def of(self, namespace: str) -> Mapping[str, int]:
        return self._used.get(namespace, _NOTHING)

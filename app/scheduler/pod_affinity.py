"""Pod affinity and anti-affinity: what newcomers ask for, and what pods that are there hold against them.

The rules are made for a class of pods by `node_ranking`. The texts are Kubernetes'.
"""

from collections.abc import Sequence

from app.scheduler.pod_counts import PodCounts
from app.scheduler.topology_domains import Rule

NOT_NEAR = "node(s) didn't match pod affinity rules"
NOT_APART = "node(s) didn't match pod anti-affinity rules"
UNWELCOME = "node(s) didn't satisfy existing pods anti-affinity rules"

_EACH_TO_AVOID = 0.2  # of the weight, for each pod that one would rather not be near


class Near(Rule):
    """The pod asks to be near others. If there are none anywhere, and it is itself one of them, it may be the first."""

    def __init__(self, key: str, tally: PodCounts, is_one: bool, others: "Sequence[Near]") -> None:
        super().__init__(key, tally)
        self._is_one = is_one
        self._others = others  # all of the pod's; the sequence is filled while they are made

    def refusal(self, value: str | None) -> str:
        if value is None:
            return NOT_NEAR
        return "" if self.domains.counts.get(value, 0) or self.may_be_first() else NOT_NEAR

    def may_be_first(self) -> bool:
        return self._is_one and not any(each.domains.any for each in self._others)

    def at_large(self) -> object:
        return self.may_be_first()


class Apart(Rule):
    """The pod may not be near others; or others may not be near it, and are there."""

    def __init__(self, key: str, tally: PodCounts, text: str) -> None:
        super().__init__(key, tally)
        self._text = text

    def refusal(self, value: str | None) -> str:
        return self._text if value is not None and self.domains.counts.get(value, 0) else ""


class Like(Rule):
    """The pod likes to be near others, or others like it to be near; or, with a weight below nothing, away.

    One neighbour is nearly as good as many, but each one to avoid makes a place worse.
    """

    def __init__(self, key: str, tally: PodCounts, weight: float) -> None:
        super().__init__(key, tally)
        self._weight = weight

    def score(self, value: str | None) -> float:
        count = self.domains.counts.get(value, 0) if value is not None else 0
        return self._weight * (count / (count + 1) if self._weight > 0 else count * _EACH_TO_AVOID)

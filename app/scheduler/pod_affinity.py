"""Pod affinity and anti-affinity: what newcomers ask for, and what pods that are there hold against them.

The rules are made for a class of pods by `node_ranking`. The texts are Kubernetes'.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from app.kinds.core.node import Node
from app.kinds.pod.pod import Pod
from app.scheduler.pod_counts import Bond, Choice, Choices, PodCounts, Term
from app.scheduler.pod_info import PodInfo, Spread
from app.scheduler.scores import OF_PLACES
from app.scheduler.topology_spread import Domains, Even, HardEven, Rule, SoftEven

if TYPE_CHECKING:
    from app.scheduler.cache import Cluster


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


Place = tuple[str, str | None]
"""A label and its value."""
Values = tuple[str | None, ...]
"""The values of all labels that matter to a class."""
_CLOSENESS = 1  # what it counts that others require to be near the newcomer


class Rules:
    """In the order in which they are asked. Empty for pods that have nothing to do with others."""

    def __init__(
        self, cluster: "Cluster", pod: Pod, info: PodInfo, concerning: Collection[tuple[Bond, PodCounts]]
    ) -> None:
        self._cluster = cluster
        self._used: list[Choices] = []
        self._rules: list[Rule] = [
            *self._spreads(pod, info.spreads),
            *self._near(pod, info.near),
            *(Apart(term.key, self._tally(term.pods), NOT_APART) for term in info.apart),
            *(Apart(bond.term.key, tally, UNWELCOME) for bond, tally in concerning if bond.sort == "apart"),
            *self._likes(info, concerning),
        ]
        self.keys = tuple(dict.fromkeys(each.key for each in self._rules))
        self._placed = [(self.keys.index(each.key), each) for each in self._rules]

    def __bool__(self) -> bool:
        return bool(self._rules)

    def _tally(self, *choices: Choice) -> PodCounts:
        self._used.append(choices)
        return self._cluster.count_of(choices)

    def _near(self, pod: Pod, terms: tuple[Term, ...]) -> Iterable[Near]:
        """Only pods that all of the terms mean count for any of them, as in Kubernetes."""
        if not terms:
            return []
        choices = tuple(each.pods for each in terms)
        tally = self._tally(*choices)
        is_one = self._cluster.tallies.are_of(choices, pod)
        found: list[Near] = []
        found += (Near(key, tally, is_one, found) for key in dict.fromkeys(each.key for each in terms))
        return found

    def _spreads(self, pod: Pod, spreads: tuple[Spread, ...]) -> Iterator[Even]:
        for sort, is_hard in ((HardEven, True), (SoftEven, False)):
            some = [each for each in spreads if each.is_hard is is_hard]
            keys = {each.term.key for each in some}
            for each in some:
                is_one = each.term.pods.selector.matches(pod.metadata.labels)
                yield sort(each, self._tally(each.term.pods), pod, keys, is_one)

    def _likes(self, info: PodInfo, concerning: Iterable[tuple[Bond, PodCounts]]) -> Iterator[Like]:
        """Preferences, of both sides: 100 points for all of them together."""
        found = [(term.key, self._tally(term.pods), weight) for term, weight in info.likes]
        found += [
            (bond.term.key, tally, bond.weight or _CLOSENESS) for bond, tally in concerning if bond.sort != "apart"
        ]
        total = sum(abs(weight) for _, _, weight in found)
        return (Like(key, tally, 100 * weight / total) for key, tally, weight in found)

    def close(self) -> None:
        for choices in self._used:
            self._cluster.tallies.leave(choices)

    def values(self, node: Node) -> Values:
        labels = node.metadata.labels
        return tuple([labels.get(key) for key in self.keys])

    # What has changed; answered are the places that are to be judged again

    def learn(self, node: Node) -> Iterator[Place]:
        """A node is new, or not what it was."""
        return ((each.key, value) for each in self._rules if (value := each.learn(node)) is not None)

    def update(self, name: str) -> Iterator[Place]:
        """Pods came to a node, or left it."""
        return ((each.key, value) for each in self._rules if (value := each.update(name)) is not None)

    def drop(self, name: str) -> Iterator[Place]:
        """A node is gone, or about to be learned again."""
        return ((each.key, value) for each in self._rules if (value := each.domains.drop(name)) is not None)

    def forget(self) -> None:
        for each in self._rules:
            each.domains = Domains()

    # Judgement

    def at_large(self) -> list[object]:
        return [each.at_large() for each in self._rules]

    def refusal(self, values: Values) -> str:
        for at, rule in self._placed:
            if why := rule.refusal(values[at]):
                return why
        return ""

    def score(self, values: Values) -> float:
        return OF_PLACES * sum(rule.score(values[at]) for at, rule in self._placed)

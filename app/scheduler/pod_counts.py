"""Pod counts: how many pods there are on each node, by labels or by affinity terms that somebody asks about.

The cluster keeps these counts as pods come and go, and only while a class of pods looks at them: a cluster without pod
affinity or spreading counts nothing.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Generic, Literal, NamedTuple, TypeVar

from app.kinds.pod.pod import Pod
from app.machinery.selectors import Selector

T = TypeVar("T")
Spaces = Mapping[str, Mapping[str, str]]
"""The labels of each namespace."""


class Choice(NamedTuple):
    """Which pods are meant. `alive`: those that are being deleted are not."""

    namespaces: frozenset[str]
    among: Selector | None  # further namespaces
    selector: Selector
    alive: bool = False

    def is_of(self, pod: Pod, spaces: Spaces) -> bool:
        meta = pod.metadata
        if meta.namespace not in self.namespaces and not (
            self.among is not None and self.among.matches(spaces.get(meta.namespace, {}))
        ):
            return False
        return self.selector.matches(meta.labels) and not (self.alive and meta.deletion_timestamp is not None)


class Term(NamedTuple):
    """Pods, and how wide a place near them is: nodes with the same value of the label `key` are one place."""

    pods: Choice
    key: str


class Bond(NamedTuple):
    """A term that pods on nodes hold, and that concerns newcomers: `weight` is for preferences, and may be negative."""

    sort: Literal["apart", "near", "like"]
    term: Term
    weight: int = 0


class PodCounts:
    """Pods by node. Each tally has a number of its own, so that one that is begun again is not taken for an older one."""

    __slots__ = ("number", "on")

    def __init__(self, number: int) -> None:
        self.number = number
        self.on: dict[str, int] = {}

    def add(self, node: str, count: int) -> None:
        now = self.on.get(node, 0) + count
        if now:
            self.on[node] = now
        else:
            self.on.pop(node, None)


class _Finder(Generic[T]):
    """Finds, of many choices, those that a pod is of: by a label that the choice insists on, where it does."""

    def __init__(self) -> None:
        self._hooked: defaultdict[tuple[str, str], dict[T, Choice]] = defaultdict(dict)
        self._others: dict[T, Choice] = {}

    def add(self, what: T, choice: Choice) -> None:
        hook = _hook(choice)
        (self._hooked[hook] if hook else self._others)[what] = choice

    def remove(self, what: T, choice: Choice) -> None:
        hook = _hook(choice)
        if hook is None:
            del self._others[what]
            return
        del self._hooked[hook][what]
        if not self._hooked[hook]:
            del self._hooked[hook]

    def of(self, pod: Pod, spaces: Spaces) -> Iterator[T]:
        for what, choice in self._others.items():
            if choice.is_of(pod, spaces):
                yield what
        for pair in pod.metadata.labels.items() if self._hooked else ():
            for what, choice in self._hooked[pair].items() if pair in self._hooked else ():
                if choice.is_of(pod, spaces):
                    yield what


def _hook(choice: Choice) -> tuple[str, str] | None:
    for each in choice.selector.requirements:
        if each.among and len(each.values) == 1 and (value := next(iter(each.values))) is not None:
            return each.key, value
    return None


Choices = tuple[Choice, ...]
"""Pods that are of all of these."""


class Tallies:
    """All counts of a cluster."""

    def __init__(self, spaces: Spaces) -> None:
        self._spaces = spaces
        self._numbers = 0
        self._counted: dict[Choices, PodCounts] = {}
        self._users: defaultdict[Choices, int] = defaultdict(int)
        self._find_counted: _Finder[Choices] = _Finder()
        self._held: dict[Bond, PodCounts] = {}
        self._find_held: _Finder[Bond] = _Finder()

    def _tally(self) -> PodCounts:
        self._numbers += 1
        return PodCounts(self._numbers)

    def count(self, pod: Pod, bonds: Iterable[Bond], node: str, sign: int) -> None:
        """A pod has come to a node, or, with sign -1, left it."""
        if self._counted:
            for choices in list(self._find_counted.of(pod, self._spaces)):
                if len(choices) == 1 or self.are_of(choices, pod):
                    self._counted[choices].add(node, sign)
        for bond in bonds:
            self._hold(bond, node, sign)

    def _hold(self, bond: Bond, node: str, sign: int) -> None:
        tally = self._held.get(bond)
        if tally is None:
            tally = self._held[bond] = self._tally()
            self._find_held.add(bond, bond.term.pods)
        tally.add(node, sign)
        if not tally.on:
            del self._held[bond]
            self._find_held.remove(bond, bond.term.pods)

    def are_of(self, choices: Choices, pod: Pod) -> bool:
        return all(each.is_of(pod, self._spaces) for each in choices)

    def use(self, choices: Choices, placed: Iterable[tuple[Pod, str]]) -> PodCounts:
        """The count of these pods, which is kept until it is left as often as it was used. `placed`: all there are."""
        self._users[choices] += 1
        if choices not in self._counted:
            tally = self._counted[choices] = self._tally()
            for pod, node in placed:
                if self.are_of(choices, pod):
                    tally.add(node, 1)
            self._find_counted.add(choices, choices[0])
        return self._counted[choices]

    def leave(self, choices: Choices) -> None:
        self._users[choices] -= 1
        if not self._users[choices]:
            del self._users[choices], self._counted[choices]
            self._find_counted.remove(choices, choices[0])

    def concerning(self, pod: Pod) -> tuple[tuple[Bond, PodCounts], ...]:
        """What the pods on nodes hold against a newcomer, or for it."""
        if not self._held:
            return ()
        found = [(bond, self._held[bond]) for bond in self._find_held.of(pod, self._spaces)]
        return tuple(sorted(found, key=_number))

    @property
    def are_held(self) -> bool:
        """Some pods on nodes care which newcomers come."""
        return bool(self._held)

    @property
    def is_idle(self) -> bool:
        """Nobody looks at other pods."""
        return not self._counted and not self._held


def _number(found: tuple[Bond, PodCounts]) -> int:
    return found[1].number

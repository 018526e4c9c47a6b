"""Scheduler cache: nodes, what is left on them, the pods on each. Kept up to date change by change.

The scheduler's controller feeds it. Decisions are tried out on it, and undone:

    with cluster.trial() as trial:
        cluster.unplace(victim_uid)
        fits = not cluster.fits(pod, info, node_name)   # all that was done in here is undone at the end,
        trial.keep()                                    # unless it is to be kept

Classes of pods are kept, with the nodes in order of how well they suit (`node_ranking`), and learn at each look which nodes
were touched since the last. So a look costs what has changed.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from weakref import WeakValueDictionary

from app.kinds.core.node import Node
from app.kinds.pod.pod import Pod
from app.kinds.pod.pod_resources import Amounts, amount
from app.scheduler.filters import Refusal
from app.scheduler.node_info import NodeInfo, Placed
from app.scheduler.node_ranking import FilterCache, Ranking
from app.scheduler.pod_counts import Choices, PodCounts, Tallies
from app.scheduler.pod_info import PodInfo
from app.scheduler.scores import DEFAULT, Settings, image_name

_ENTRIES = 200_000  # nodes in all rankings together: more are forgotten between two rounds
_LOG = 20_000


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


class Trial:
    """What was done since it began, so that it can be undone."""

    def __init__(self) -> None:
        self.done: list[tuple[bool, Placed]] = []  # True for placed
        self.is_kept = False

    def keep(self) -> None:
        self.is_kept = True


class Cluster:
    def __init__(self, settings: Settings = DEFAULT) -> None:
        self.settings = settings
        self.node_infos: dict[str, NodeInfo] = {}
        self.placed: dict[str, Placed] = {}  # by the pod's UID
        self.images: Counter[str] = Counter()  # on how many nodes each is
        self._there: dict[str, dict[str, Placed]] = {}  # by node, whether it is known or not
        self._spaces: dict[str, Mapping[str, str]] = {}
        self.tallies = Tallies(self._spaces)
        self.ledger: NamespaceUsage | None = None
        self._rankings: OrderedDict[object, Ranking] = OrderedDict()
        self._suits: WeakValueDictionary[object, FilterCache] = WeakValueDictionary()
        self.eased_at = 0  # when a node last grew, came, went or changed
        self._trial: Trial | None = None
        self._log: list[str] = []
        self._log_begins = 0

    # Nodes and namespaces

    def set_node(self, node: Node) -> bool:
        """A node is new, or has changed; True if that matters here."""
        name = node.metadata.name
        size = {resource: amount(resource, quantity) for resource, quantity in node.status.allocatable.items()}
        old = self.node_infos.get(name)
        if old is not None:
            if old.size == size and _looks_the_same(old.node, node):
                old.node = node
                return False
            self._count_images(old.node, -1)
        self._count_images(node, 1)
        node_info = self.node_infos[name] = NodeInfo(node, size, self._there.setdefault(name, {}))
        self._touch(name)
        node_info.shaped_at = node_info.eased_at = self.eased_at = self.now
        return True

    def remove_node(self, name: str) -> bool:
        node_info = self.node_infos.pop(name, None)
        if node_info is None:
            return False
        self._count_images(node_info.node, -1)
        if not self._there[name]:
            del self._there[name]
        self._touch(name)
        self.eased_at = self.now
        return True

    def set_namespace(self, name: str, labels: Mapping[str, str] | None) -> bool:
        """Pods may be chosen by the labels of their namespaces; True if any are. None: the namespace is gone."""
        if self._spaces.get(name) == labels:
            return False
        if labels is None:
            del self._spaces[name]
        else:
            self._spaces[name] = labels
        if self.tallies.is_idle:
            return False
        self._recount()
        return True

    def _recount(self) -> None:
        """Rare: what was counted by namespaces' labels is counted again."""
        self._rankings.clear()
        self.tallies = Tallies(self._spaces)
        for each in self.placed.values():
            self.tallies.count(each.pod, each.info.bonds, each.node, 1)

    def _count_images(self, node: Node, sign: int) -> None:
        for image in node.status.images:
            for name in image.names:
                self.images[name] += sign
                if not self.images[name]:
                    del self.images[name]

    # Pods

    def place(self, pod: Pod, node: str, info: PodInfo) -> None:
        """A pod is on a node. One that is there already is taken for what it is now."""
        known = self.placed.get(pod.metadata.uid)
        if known is not None:
            if known.node == node and _counts_the_same(known.pod, pod):
                known.pod = pod
                return
            self._take(known)
        self._put(Placed(pod, node, info))

    def unplace(self, uid: str) -> Placed | None:
        """A pod is gone from its node."""
        known = self.placed.get(uid)
        if known is not None:
            self._take(known)
        return known

    def _put(self, placed: Placed) -> None:
        uid, name = placed.pod.metadata.uid, placed.node
        self.placed[uid] = placed
        node_info = self.node_infos.get(name)
        if node_info is not None:
            node_info.put(uid, placed)
        else:
            self._there.setdefault(name, {})[uid] = placed
        self._done(placed, 1)

    def _take(self, placed: Placed) -> None:
        uid, name = placed.pod.metadata.uid, placed.node
        del self.placed[uid]
        node_info = self.node_infos.get(name)
        if node_info is not None:
            node_info.take(uid, placed)
        else:
            del self._there[name][uid]
            if not self._there[name]:
                del self._there[name]
        self._done(placed, -1)

    def _done(self, placed: Placed, sign: int) -> None:
        if placed.info.bonds or not self.tallies.is_idle:
            self.tallies.count(placed.pod, placed.info.bonds, placed.node, sign)
        if self.ledger is not None:
            self.ledger.count(placed.pod.metadata.namespace, placed.info.needs, sign)
        if self._trial is not None:
            self._trial.done.append((sign > 0, placed))
        self._touch(placed.node)
        if sign < 0 and (node_info := self.node_infos.get(placed.node)):
            node_info.eased_at = self.eased_at = self.now

    def keep_ledger(self, is_needed: bool) -> None:
        """Keep account of what each namespace's pods take up, or do not."""
        if is_needed and self.ledger is None:
            self.ledger = NamespaceUsage()
            for each in self.placed.values():
                self.ledger.count(each.pod.metadata.namespace, each.info.needs, 1)
        elif not is_needed:
            self.ledger = None

    @contextmanager
    def trial(self) -> Iterator[Trial]:
        """What is placed and unplaced in here is undone at the end, unless it is kept. Trials may be nested."""
        outer, inner = self._trial, Trial()
        self._trial = inner
        try:
            yield inner
        finally:
            self._trial = None
            if not inner.is_kept:
                for came, placed in reversed(inner.done):
                    (self._take if came else self._put)(placed)
            elif outer is not None:
                outer.done += inner.done
            self._trial = outer

    # What changed since when

    def _touch(self, name: str) -> None:
        self._log.append(name)
        node_info = self.node_infos.get(name)
        if node_info is not None:
            node_info.touched_at = self.now
        if len(self._log) > _LOG + 4 * len(self.node_infos):
            half = len(self._log) // 2
            del self._log[:half]
            self._log_begins += half

    @property
    def now(self) -> int:
        """Rises with every change."""
        return self._log_begins + len(self._log)

    def touched_since(self, then: int) -> list[str] | None:
        """The nodes with changes since, each as often as it changed; None if that is too long ago to be known."""
        start = then - self._log_begins
        return self._log[start:] if start >= 0 else None

    def count_of(self, choices: Choices) -> PodCounts:
        return self.tallies.use(choices, ((each.pod, each.node) for each in self.placed.values()))

    # Questions

    def ranking(self, pod: Pod, info: PodInfo) -> Ranking:
        """The pod's class: all nodes, as they suit it."""
        concerning = self.tallies.concerning(pod)
        images = self._images_of(pod) if self.images else frozenset()
        key = (info.key, tuple(tally.number for _, tally in concerning), images)
        found = self._rankings.get(key)
        if found is None:
            suits = self._suits_of(pod, info, images)
            found = self._rankings[key] = Ranking(self, pod, info, concerning, suits)
        else:
            self._rankings.move_to_end(key)
        return found

    def _suits_of(self, pod: Pod, info: PodInfo, images: frozenset[str]) -> FilterCache:
        found = self._suits.get((info.where, images))
        if found is None:
            found = self._suits[info.where, images] = FilterCache(pod, images)
        return found

    def _images_of(self, pod: Pod) -> frozenset[str]:
        containers = (*pod.spec.init_containers, *pod.spec.containers)
        return frozenset(name for each in containers if (name := image_name(each.image)) in self.images)

    def fits(self, pod: Pod, info: PodInfo, node: str) -> tuple[str, ...]:
        """Why the pod may not be put on a node now; nothing if it may."""
        return self.ranking(pod, info).reasons(node)

    def refusal(self, pod: Pod, info: PodInfo) -> Refusal:
        """Why the pod may not be put on any node, and where it would not help if pods went."""
        return self.ranking(pod, info).refusal()

    def forget(self) -> None:
        """Drop the classes that were not looked at for longest, if there are too many. Called between rounds."""
        most = max(16, _ENTRIES // max(1, len(self.node_infos)))
        while len(self._rankings) > most:
            _, ranking = self._rankings.popitem(last=False)
            ranking.close()


def _looks_the_same(one: Node, other: Node) -> bool:
    return (
        one.spec == other.spec
        and one.metadata.labels == other.metadata.labels
        and one.status.images == other.status.images
    )


def _counts_the_same(one: Pod, other: Pod) -> bool:
    """For those who count pods by their labels."""
    before, after = one.metadata, other.metadata
    return before.labels == after.labels and (before.deletion_timestamp is None) == (after.deletion_timestamp is None)

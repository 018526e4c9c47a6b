"""Scheduler cache: nodes, what is free on them, the pods on each; updated change by change. kube-scheduler's `backend/cache`.

The scheduler's controller feeds it. Decisions are tried on it and rolled back:

    with cluster.trial() as trial:
        cluster.unplace(victim_uid)
        reasons = cluster.filter_reasons(pod, info, node_name)   # rolled back at the end of the block,
        trial.commit()                                           # unless it is committed

Rankings of nodes (`node_ranking`) are kept by scheduling class, and update themselves by the nodes that changed since they were
asked last: so a question costs what has changed.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from weakref import WeakValueDictionary

from app.kinds.core.node import Node
from app.kinds.pod.pod import Pod
from app.kinds.pod.pod_resources import Amounts, amount
from app.scheduler.node_info import NodeInfo, PlacedPod
from app.scheduler.node_ranking import FilterCache, Ranking
from app.scheduler.pod_counts import PodCountIndex, PodCounts, PodSelectors
from app.scheduler.pod_info import PodInfo
from app.scheduler.scores import DEFAULT, ScoringSettings, image_name

_MAX_RANKED_NODES = 200_000  # in all rankings together, between two rounds
_MIN_CHANGES = 20_000  # that are remembered
_NO_USAGE: Mapping[str, int] = {}


class NamespaceUsage:
    """Requests of the placed pods, by namespace and resource."""

    def __init__(self) -> None:
        self._used: dict[str, Amounts] = {}

    def count(self, namespace: str, requests: Amounts, sign: int) -> None:
        used = self._used.setdefault(namespace, {})
        for name, count in requests.items():
            used[name] = used.get(name, 0) + sign * count

    def get(self, namespace: str) -> Mapping[str, int]:
        return self._used.get(namespace, _NO_USAGE)


class Trial:
    """Changes of pods since it began, for rolling back."""

    def __init__(self) -> None:
        self.changes: list[tuple[bool, PlacedPod]] = []  # True: placed
        self.is_committed = False

    def commit(self) -> None:
        self.is_committed = True


class Cluster:
    def __init__(self, settings: ScoringSettings = DEFAULT) -> None:
        self.settings = settings
        self.node_infos: dict[str, NodeInfo] = {}
        self.pods: dict[str, PlacedPod] = {}  # on nodes, by UID
        self.usage: NamespaceUsage | None = None
        self.freed_generation = 0  # when a node last had more free, came, went or changed
        self._image_nodes: Counter[str] = Counter()  # on how many nodes each image is
        self._pods_by_node: dict[str, dict[str, PlacedPod]] = {}  # also of nodes that are not known
        self._namespaces: dict[str, Mapping[str, str]] = {}  # labels
        self.pod_count_index = PodCountIndex(self._namespaces)
        self._rankings: OrderedDict[object, Ranking] = OrderedDict()
        self._filter_caches: WeakValueDictionary[object, FilterCache] = WeakValueDictionary()
        self._trial: Trial | None = None
        self._changes: list[str] = []  # names of nodes; its end is the generation
        self._changes_start = 0

    # Nodes and namespaces

    def set_node(self, node: Node) -> bool:
        """Add or update a node. Returns whether that matters to the scheduler."""
        name = node.metadata.name
        allocatable = {resource: amount(resource, quantity) for resource, quantity in node.status.allocatable.items()}
        old = self.node_infos.get(name)
        if old is not None:
            if old.allocatable == allocatable and _is_same_node(old.node, node):
                old.node = node
                return False
            self._count_images(old.node, -1)
        self._count_images(node, 1)
        node_info = NodeInfo(node, allocatable, self._pods_by_node.setdefault(name, {}))
        self.node_infos[name] = node_info
        self._note_change(name)
        node_info.node_generation = node_info.freed_generation = self.freed_generation = self.generation
        return True

    def remove_node(self, name: str) -> bool:
        """Returns whether it was known."""
        node_info = self.node_infos.pop(name, None)
        if node_info is None:
            return False
        self._count_images(node_info.node, -1)
        if not self._pods_by_node[name]:
            del self._pods_by_node[name]
        self._note_change(name)
        self.freed_generation = self.generation
        return True

    def set_namespace(self, name: str, labels: Mapping[str, str] | None) -> bool:
        """Set a namespace's labels; None: it is gone. Returns whether a namespaceSelector may match otherwise now."""
        if self._namespaces.get(name) == labels:
            return False
        if labels is None:
            del self._namespaces[name]
        else:
            self._namespaces[name] = labels
        if self.pod_count_index.is_idle:
            return False
        self._recount_pods()
        return True

    def _recount_pods(self) -> None:
        self._rankings.clear()
        self.pod_count_index = PodCountIndex(self._namespaces)
        for each in self.pods.values():
            self.pod_count_index.count_pod(each.pod, each.info.symmetric_terms, each.node, 1)

    def _count_images(self, node: Node, sign: int) -> None:
        for image in node.status.images:
            for name in image.names:
                self._image_nodes[name] += sign
                if not self._image_nodes[name]:
                    del self._image_nodes[name]

    # Pods

    def place(self, pod: Pod, node: str, info: PodInfo) -> None:
        """Add a pod to a node; update or move one that is there already."""
        known = self.pods.get(pod.metadata.uid)
        if known is not None:
            if known.node == node and _is_counted_same(known.pod, pod):
                known.pod = pod
                return
            self._remove(known)
        self._add(PlacedPod(pod, node, info))

    def unplace(self, uid: str) -> PlacedPod | None:
        """Remove a pod from its node. Returns what was there."""
        known = self.pods.get(uid)
        if known is not None:
            self._remove(known)
        return known

    def _add(self, placed: PlacedPod) -> None:
        uid, name = placed.pod.metadata.uid, placed.node
        self.pods[uid] = placed
        node_info = self.node_infos.get(name)
        if node_info is not None:
            node_info.add_pod(uid, placed)
        else:
            self._pods_by_node.setdefault(name, {})[uid] = placed
        self._count(placed, 1)

    def _remove(self, placed: PlacedPod) -> None:
        uid, name = placed.pod.metadata.uid, placed.node
        del self.pods[uid]
        node_info = self.node_infos.get(name)
        if node_info is not None:
            node_info.remove_pod(uid, placed)
        else:
            del self._pods_by_node[name][uid]
            if not self._pods_by_node[name]:
                del self._pods_by_node[name]
        self._count(placed, -1)

    def _count(self, placed: PlacedPod, sign: int) -> None:
        if placed.info.symmetric_terms or not self.pod_count_index.is_idle:
            self.pod_count_index.count_pod(placed.pod, placed.info.symmetric_terms, placed.node, sign)
        if self.usage is not None:
            self.usage.count(placed.pod.metadata.namespace, placed.info.requests, sign)
        if self._trial is not None:
            self._trial.changes.append((sign > 0, placed))
        self._note_change(placed.node)
        if sign < 0 and (node_info := self.node_infos.get(placed.node)):
            node_info.freed_generation = self.freed_generation = self.generation

    def track_usage(self, is_needed: bool) -> None:
        """Begin or stop to count `usage`."""
        if is_needed and self.usage is None:
            self.usage = NamespaceUsage()
            for each in self.pods.values():
                self.usage.count(each.pod.metadata.namespace, each.info.requests, 1)
        elif not is_needed:
            self.usage = None

    @contextmanager
    def trial(self) -> Iterator[Trial]:
        """Roll back what is placed and unplaced in the block, unless the trial is committed. Trials may be nested."""
        outer, inner = self._trial, Trial()
        self._trial = inner
        try:
            yield inner
        finally:
            self._trial = None
            if not inner.is_committed:
                for was_placed, placed in reversed(inner.changes):
                    (self._remove if was_placed else self._add)(placed)
            elif outer is not None:
                outer.changes += inner.changes
            self._trial = outer

    # Generations

    def _note_change(self, name: str) -> None:
        self._changes.append(name)
        node_info = self.node_infos.get(name)
        if node_info is not None:
            node_info.generation = self.generation
        if len(self._changes) > _MIN_CHANGES + 4 * len(self.node_infos):
            half = len(self._changes) // 2
            del self._changes[:half]
            self._changes_start += half

    @property
    def generation(self) -> int:
        """Rises with every change."""
        return self._changes_start + len(self._changes)

    def changed_since(self, generation: int) -> list[str] | None:
        """Nodes with changes since, each as often as it changed; None if the changes are not remembered any more."""
        start = generation - self._changes_start
        return self._changes[start:] if start >= 0 else None

    def acquire_counts(self, selectors: PodSelectors) -> PodCounts:
        """Counts of the pods that all selectors match; to be released in `pod_count_index`."""
        return self.pod_count_index.acquire(selectors, ((each.pod, each.node) for each in self.pods.values()))

    # Rankings

    def ranking(self, pod: Pod, info: PodInfo) -> Ranking:
        """Nodes ranked for the pod's class."""
        symmetric_terms = self.pod_count_index.find_symmetric_terms(pod)
        images = self._present_images(pod) if self._image_nodes else frozenset()
        key = (info.key, tuple(pod_counts.number for _, pod_counts in symmetric_terms), images)
        found = self._rankings.get(key)
        if found is None:
            filter_cache = self._filter_cache(pod, info, images)
            found = self._rankings[key] = Ranking(self, pod, info, symmetric_terms, filter_cache)
        else:
            self._rankings.move_to_end(key)
        return found

    def _filter_cache(self, pod: Pod, info: PodInfo, images: frozenset[str]) -> FilterCache:
        found = self._filter_caches.get((info.filter_key, images))
        if found is None:
            found = self._filter_caches[info.filter_key, images] = FilterCache(pod, info.volumes, images)
        return found

    def _present_images(self, pod: Pod) -> frozenset[str]:
        """The pod's images that are on some node."""
        containers = (*pod.spec.init_containers, *pod.spec.containers)
        return frozenset(name for each in containers if (name := image_name(each.image)) in self._image_nodes)

    def filter_reasons(self, pod: Pod, info: PodInfo, node: str) -> tuple[str, ...]:
        """Return why a node is rejected for the pod now; empty if it passes the filters."""
        return self.ranking(pod, info).filter_reasons(node)

    def trim_rankings(self) -> None:
        """Drop the rankings that were not asked for longest, if there are too many. Called between rounds."""
        most = max(16, _MAX_RANKED_NODES // max(1, len(self.node_infos)))
        while len(self._rankings) > most:
            _, ranking = self._rankings.popitem(last=False)
            ranking.close()


def _is_same_node(one: Node, other: Node) -> bool:
    return (
        one.spec == other.spec
        and one.metadata.labels == other.metadata.labels
        and one.status.images == other.status.images
    )


def _is_counted_same(one: Pod, other: Pod) -> bool:
    """To counts by labels."""
    before, after = one.metadata, other.metadata
    return before.labels == after.labels and (before.deletion_timestamp is None) == (after.deletion_timestamp is None)

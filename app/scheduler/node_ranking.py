"""Node ranking: nodes in order of their score for one class of pods, updated by what changed since the last look.

Nodes that differ only in load are in one group: a heap by score. Where a class cares about other pods, there is a group for
each combination of the places that it cares about, and a heap of groups; a placement then changes the groups in its places.
"""

import heapq
from collections import defaultdict
from collections.abc import Collection, Container, Iterable
from typing import TYPE_CHECKING

from app.kinds.pod.pod import Pod
from app.scheduler import filters, scores
from app.scheduler.filters import Refusal, barred
from app.scheduler.node_info import NodeInfo, are_taken
from app.scheduler.pod_affinity import NOT_NEAR, Place, Rules, Values
from app.scheduler.pod_counts import Bond, PodCounts
from app.scheduler.pod_info import PodInfo
from app.scheduler.topology_spread import NO_PLACE

if TYPE_CHECKING:
    from app.scheduler.cache import Cluster

_HOPELESS = frozenset({NOT_NEAR, NO_PLACE})  # what stays so when pods go
_SPARE = 64  # entries of a heap that are out of date and do not matter
_Entry = tuple[float, str, int]
"""Points below nothing, so that the best is the least; a node; when it was touched."""


class FilterCache:
    """`pod`: any of those. `images`: of theirs, those that are on some node."""

    __slots__ = ("__weakref__", "_images", "_pod", "_shaped_at", "barred", "points")

    def __init__(self, pod: Pod, images: frozenset[str]) -> None:
        self._pod, self._images = pod, images
        self._shaped_at: dict[str, int] = {}  # the node that was looked at, by name
        self.barred: dict[str, str] = {}  # why not
        self.points: dict[str, float] = {}  # of those that are not barred; load does not change them

    def learn(self, name: str, node_info: NodeInfo) -> None:
        """A node is new, or may not be what it was."""
        if self._shaped_at.get(name) == node_info.shaped_at:
            return
        self.forget(name)
        self._shaped_at[name] = node_info.shaped_at
        if why := barred(self._pod, node_info.node):
            self.barred[name] = why
        else:
            self.points[name] = scores.of_node(self._pod, node_info.node, self._images)

    def forget(self, name: str) -> None:
        self._shaped_at.pop(name, None)
        self.barred.pop(name, None)
        self.points.pop(name, None)

    def keep(self, names: Container[str]) -> None:
        """Forget all others."""
        for name in [each for each in self._shaped_at if each not in names]:
            self.forget(name)


class _Group:
    """Nodes in the same places."""

    __slots__ = ("heap", "judged_at", "refusal", "top", "values")

    def __init__(self, values: Values) -> None:
        self.values = values
        self.heap: list[_Entry] = []
        self.refusal = ""
        self.judged_at = 0
        self.top: _Entry | None = None  # the best node, when it was judged


class Ranking:
    def __init__(
        self,
        cluster: "Cluster",
        pod: Pod,
        info: PodInfo,
        concerning: Collection[tuple[Bond, PodCounts]],
        suits: FilterCache,
    ) -> None:
        self.info = info
        self._cluster = cluster
        self._suits = suits
        self._needs = tuple(info.needs.items())
        self._ports = info.ports
        self._likes_load = cluster.settings.likes_load
        self._rules = Rules(cluster, pod, info, concerning)
        self._is_plain = not self._rules
        # What has only got fuller has got worse: that is found out when it comes up.
        self._is_lazy = self._is_plain and not self._likes_load
        self._groups: dict[Values, _Group] = {}
        self._of_place: defaultdict[Place, dict[Values, _Group]] = defaultdict(dict)
        self._best: list[tuple[float, str, int, _Group]] = []
        self._dirty: dict[Values, _Group] = {}
        self._at_large: object = None
        self._judgements = 0
        self._seen_at = 0
        self._look_at_all()

    def close(self) -> None:
        """Nobody asks any more."""
        self._rules.close()

    # Looking

    def best(self) -> str | None:
        """The node that suits best now; None if none does."""
        self._catch_up()
        if self._is_plain:
            top = self._top(self._groups[()])
            return top[1] if top else None
        while self._best:
            _, name, judged_at, group = self._best[0]
            if group.judged_at == judged_at:
                if self._top(group) is group.top:
                    return name
                self._judge_group(group)
            else:
                heapq.heappop(self._best)
        return None

    def reasons(self, name: str) -> tuple[str, ...]:
        """Why a node does not do, by the first filter that it does not pass; nothing if it does."""
        self._catch_up()
        return self._reasons(name)

    def _reasons(self, name: str) -> tuple[str, ...]:
        node_info = self._cluster.node_infos[name]
        if why := self._suits.barred.get(name):
            return (why,)
        if self.info.ports and are_taken(self.info.ports, node_info.ports):
            return (filters.NO_PORTS,)
        if short := filters.lacking(node_info.free, self.info.needs):
            return tuple(map(filters.insufficient, short))
        why = "" if self._is_plain else self._groups[self._rules.values(node_info.node)].refusal
        return (why,) if why else ()

    def refusal(self) -> Refusal:
        self._catch_up()
        reasons = {name: self._reasons(name) for name in self._cluster.node_infos}
        return Refusal(reasons, frozenset(name for name in reasons if self._is_hopeless(name)))

    def _is_hopeless(self, name: str) -> bool:
        """It would not do either if there were no pods on it, or fewer."""
        node_info = self._cluster.node_infos[name]
        if name in self._suits.barred or filters.lacking(node_info.size, self.info.needs):
            return True
        return not self._is_plain and self._groups[self._rules.values(node_info.node)].refusal in _HOPELESS

    # Following the cluster

    def _catch_up(self) -> None:
        then, self._seen_at = self._seen_at, self._cluster.now
        if then == self._seen_at or (self._is_lazy and self._cluster.eased_at <= then):
            return
        touched = self._cluster.touched_since(then)
        if touched is None:
            self._look_at_all()
            return
        if self._is_lazy:
            node_infos = self._cluster.node_infos
            touched = [
                name for name in touched if (node_info := node_infos.get(name)) is None or node_info.eased_at > then
            ]
        for name in dict.fromkeys(touched):
            self._look_at(name, then)
        if not self._is_plain:
            self._judge()

    def _look_at_all(self) -> None:
        self._seen_at = self._cluster.now
        for known in (self._groups, self._of_place, self._dirty):
            known.clear()
        self._best.clear()
        self._suits.keep(self._cluster.node_infos)
        self._rules.forget()
        if self._is_plain:
            self._groups[()] = _Group(())
        for name in self._cluster.node_infos:
            self._look_at(name, -1)
        if not self._is_plain:
            self._judge()

    def _look_at(self, name: str, then: int) -> None:
        node_info = self._cluster.node_infos.get(name)
        if node_info is None or node_info.shaped_at > then:
            if not self._is_plain:
                self._note(self._rules.drop(name))
            if node_info is None:
                self._suits.forget(name)
                return
            self._learn(name, node_info)
        else:
            if not self._is_plain:
                self._note(self._rules.update(name))
            if node_info.eased_at <= then and not self._likes_load:
                return
        if name in self._suits.points:
            self._push(name, node_info)

    def _learn(self, name: str, node_info: NodeInfo) -> None:
        """A node is new, or not what it was."""
        self._suits.learn(name, node_info)
        if self._is_plain:
            return
        self._note(self._rules.learn(node_info.node))
        values = self._rules.values(node_info.node)
        if values not in self._groups:
            group = self._groups[values] = self._dirty[values] = _Group(values)
            for place in zip(self._rules.keys, values, strict=True):
                self._of_place[place][values] = group

    def _note(self, places: Iterable[Place]) -> None:
        """These have changed."""
        for place in places:
            self._dirty.update(self._of_place.get(place, {}))

    def _push(self, name: str, node_info: NodeInfo) -> None:
        group = self._groups[() if self._is_plain else self._rules.values(node_info.node)]
        points = self._points(name, node_info)
        if points is None:
            return
        heapq.heappush(group.heap, (points, name, node_info.touched_at))
        if len(group.heap) > _SPARE + 2 * len(self._suits.points):
            self._tidy(group)
        if not self._is_plain:
            self._dirty[group.values] = group

    def _points(self, name: str, node_info: NodeInfo) -> float | None:
        """Below nothing, so that the best is the least; None if there is no room."""
        free = node_info.free
        for resource, count in self._needs:
            if free.get(resource, 0) < count:
                return None
        if self._ports and are_taken(self._ports, node_info.ports):
            return None
        return -self._suits.points[name] - scores.of_room(node_info, self.info, likes_load=self._likes_load)

    def _tidy(self, group: _Group) -> None:
        """One entry for each node."""
        names = dict.fromkeys(name for _, name, _ in group.heap)
        group.heap = []
        for name in names:
            node_info = self._cluster.node_infos.get(name)
            if node_info is not None and name in self._suits.points and self._is_in(group, node_info):
                points = self._points(name, node_info)
                if points is not None:
                    group.heap.append((points, name, node_info.touched_at))
        heapq.heapify(group.heap)

    def _is_in(self, group: _Group, node_info: NodeInfo) -> bool:
        return self._is_plain or self._rules.values(node_info.node) == group.values

    def _top(self, group: _Group) -> _Entry | None:
        """The best node of a group. An entry that is out of date is never too bad: what has got better was entered anew."""
        heap, node_infos = group.heap, self._cluster.node_infos
        while heap:
            top = heap[0]
            _, name, touched_at = top
            node_info = node_infos.get(name)
            if node_info is None or name not in self._suits.points or not self._is_in(group, node_info):
                heapq.heappop(heap)
                continue
            if node_info.touched_at == touched_at:
                return top
            points = self._points(name, node_info)
            if points is None:
                heapq.heappop(heap)
            else:
                heapq.heapreplace(heap, (points, name, node_info.touched_at))
        return None

    def _judge(self) -> None:
        """Judge the groups anew that have changed; all, if what all depend on has."""
        at_large = self._rules.at_large()
        if at_large != self._at_large:
            self._at_large = at_large
            self._dirty = dict(self._groups)
        for group in self._dirty.values():
            self._judge_group(group)
        self._dirty = {}
        if len(self._best) > _SPARE + 2 * len(self._groups):
            self._best = [each for each in self._best if each[3].judged_at == each[2]]
            heapq.heapify(self._best)

    def _judge_group(self, group: _Group) -> None:
        self._judgements += 1
        group.judged_at = self._judgements
        group.refusal = self._rules.refusal(group.values)
        group.top = None if group.refusal else self._top(group)
        if group.top is not None:
            points, name, _ = group.top
            heapq.heappush(self._best, (points - self._rules.score(group.values), name, group.judged_at, group))

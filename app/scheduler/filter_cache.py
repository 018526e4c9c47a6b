"""Filter cache: which nodes pass the filters of pods with the same demands. Shared by the rankings of such pods.

What has been found out holds until the node changes its shape; whichever ranking comes first finds it out.
"""

from collections.abc import Container

from app.kinds.pod.pod import Pod
from app.scheduler import filters, scores
from app.scheduler.node_info import NodeInfo


class Suits:
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
        if why := filters.barred(self._pod, node_info.node):
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

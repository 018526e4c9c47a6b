"""Which nodes suit pods that make the same demands on nodes, whatever the room there. Shared by the rankings of such pods.

What has been found out holds until the node changes its shape; whichever ranking comes first finds it out.
"""

from collections.abc import Container

from app.kinds.pod import Pod
from app.plans.scheduling import filters, scores
from app.plans.scheduling.room import Room


class Suits:
    """`pod`: any of those. `images`: of theirs, those that are on some node."""

    __slots__ = ("__weakref__", "_images", "_pod", "_shaped_at", "barred", "points")

    def __init__(self, pod: Pod, images: frozenset[str]) -> None:
        self._pod, self._images = pod, images
        self._shaped_at: dict[str, int] = {}  # the node that was looked at, by name
        self.barred: dict[str, str] = {}  # why not
        self.points: dict[str, float] = {}  # of those that are not barred; load does not change them

    def learn(self, name: str, room: Room) -> None:
        """A node is new, or may not be what it was."""
        if self._shaped_at.get(name) == room.shaped_at:
            return
        self.forget(name)
        self._shaped_at[name] = room.shaped_at
        if why := filters.barred(self._pod, room.node):
            self.barred[name] = why
        else:
            self.points[name] = scores.of_node(self._pod, room.node, self._images)

    def forget(self, name: str) -> None:
        self._shaped_at.pop(name, None)
        self.barred.pop(name, None)
        self.points.pop(name, None)

    def keep(self, names: Container[str]) -> None:
        """Forget all others."""
        for name in [each for each in self._shaped_at if each not in names]:
            self.forget(name)

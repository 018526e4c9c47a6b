"""Image garbage collection: which images and ended containers a node removes when its disk fills up. Pure.

The kubelet's rules: from 85 % of the disk down to 80 %; least recently used images first, none that is in use or new.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

from app.plans.kubelet.container_history import Run, was_healthy

HIGH, LOW = 0.85, 0.80
LEAST_AGE = timedelta(minutes=2)


class Disk(NamedTuple):
    """Bytes."""

    size: int
    free: int


class StoredImage(NamedTuple):
    """An image, its bytes, when it was last used (if it was), and when it was first seen here."""

    id: str
    size: int
    used_at: datetime | None
    seen_at: datetime


def bytes_to_free(disk: Disk, *, now: bool = False) -> int:
    """Bytes to free; 0 below the high mark. `now`: also below it, as the node is under disk pressure."""
    used = disk.size - disk.free
    return max(0, used - int(disk.size * LOW)) if now or used >= disk.size * HIGH else 0


def removable_images(images: Iterable[StoredImage], in_use: Collection[str], now: datetime) -> Iterator[StoredImage]:
    """Images that may be removed, in this order."""
    removable = [each for each in images if each.id not in in_use and now - each.seen_at >= LEAST_AGE]
    return iter(sorted(removable, key=lambda each: (each.used_at or each.seen_at, each.seen_at, each.id)))


def removable_runs(runs: Iterable[Run]) -> Iterator[Run]:
    """Ended runs to remove. Of each container the last one stays, and the last healthy one, for its back-off."""
    kept: set[tuple[str, bool]] = set()
    for run in sorted(runs, key=lambda each: -each.attempt):
        if run.state != "exited":
            continue
        reasons = {(run.name, False), (run.name, was_healthy(run))}
        if reasons <= kept:
            yield run
        kept |= reasons


def update_first_seen(before: Mapping[str, datetime], images: Collection[str], now: datetime) -> dict[str, datetime]:
    """Return when each image was first seen, for the images that exist now."""
    return {each: before.get(each, now) for each in images}

"""Lifetimes of namespaces and nodes: when one was last deleted. A later one of the same name may be another owner's.

`app.registry.verbs.lists` asks before it reads history for a namespace or a node. It is answered from memory, which follows the
feed, but for revisions from before this process began; those cost a query.
"""

from collections import OrderedDict
from collections.abc import Sequence

import asyncpg

from app.store.change_feed import Change, Feed
from app.store.errors import Key, call_database

NAMESPACES, NODES = "namespaces", "nodes"
MOST = 10_000  # deletions in memory
# Compaction takes a deletion when the floor is above it, and then answers for all that is older.
_ENDED = """select revision from versions where change = 'D' and kind in ('namespaces', 'nodes')
    and kind = $1 and name = $2 and revision > $3 order by revision desc limit 1"""


class Lifetimes:
    """Lifetimes that one process knows of. The store calls `apply` with every batch of changes."""

    def __init__(self, pool: asyncpg.Pool, feed: Feed) -> None:
        self._pool = pool
        self._feed = feed
        self._ends: OrderedDict[Key, int] = OrderedDict()
        self._forgotten = 0  # the newest deletion that is no longer in memory
        self._newest = 0  # the newest deletion of all

    def apply(self, changes: Sequence[Change]) -> None:
        """Follow the feed."""
        for change in changes:
            if change.change == "D" and change.key.kind in (NAMESPACES, NODES):
                self._ends[change.key] = self._newest = change.revision
                self._ends.move_to_end(change.key)
                if len(self._ends) > MOST:
                    self._forgotten = self._ends.popitem(last=False)[1]

    def all_live_since(self, revision: int) -> bool:
        """Return whether memory is enough to say that nothing was deleted after a revision: each event of each watch asks."""
        return self._newest <= revision >= self._feed.unbroken_since

    async def ended_after(self, key: Key, revision: int) -> int:
        """The revision of the last deletion of a namespace or node, if that is newer than `revision`; else 0."""
        if revision < max(self._feed.unbroken_since, self._forgotten):
            return await call_database(self._pool.fetchval(_ENDED, key.kind, key.name, revision)) or 0
        end = self._ends.get(key, 0)
        return end if end > revision else 0

"""Timelines: the revisions that one run of the database server gives out. Used by `app.store.store` on each new connection.

A database goes back in time when a standby is promoted that was behind, when a backup is restored, or when a server crashes
that does not wait for its disk. Whoever writes first on a new server run begins a timeline (`sql/begin_timeline.sql`):
the counter jumps, and the revisions in between are never given out. A process that knows one of those has seen changes that
are lost. It starts anew, and clients that come with such a revision get 410.
"""

from typing import NamedTuple

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from app.store.change_feed import Feed, Loss
from app.structured_logging import Logger

logger = Logger(__name__)
Connection = asyncpg.Connection | PoolConnectionProxy

_BEGIN = "select begin_timeline($1)"
# For a process that follows timeline $1. `ended`: the last revision that the timelines after it have in common with it.
_LOOK = """select c.revision, greatest(c.floor, c.secrets_floor) as floor, c.timeline,
    (select min(after) from timelines where began > $1) as ended from counter c"""
# Of the timeline that took the place of a revision which was lost.
BEGINNING = "(select t.began from timelines t where t.after < {0} and {0} < t.began order by t.began desc limit 1)"
_IS_LOST = "select exists (select from timelines where after < $1 and $1 < began)"
_FORGET = """delete from timelines t where exists (
    select from timelines n where n.began > t.began and n.began <= (select floor from counter))"""


class Position(NamedTuple):
    """Position in a database: a revision, and the timeline that it belongs to."""

    revision: int
    timeline: int


async def read_position(pool: asyncpg.Pool, rows: int = 0) -> Position:
    """Return the last revision given out; or one before it that at most so many changes follow, all of which are known."""
    (row,) = await pool.fetch(_LOOK, 0)
    revision, timeline = row["revision"], row["timeline"]
    return Position(min(revision, max(revision - rows, row["floor"], timeline, 1)), timeline)


async def begin(connection: Connection, feed: Feed) -> None:
    """Prepare a connection that will write: from here on the counter gives out no revision that was given out before."""
    await connection.execute(_BEGIN, feed.known)
    await check_timeline(connection, feed)


async def check_timeline(connection: Connection, feed: Feed) -> None:
    """Compare what the process knows with what this connection shows, before anything else is read from it.

    Raises asyncpg's errors; on a standby that is behind the process, that it is read-only.
    """
    if not feed.has_started:
        return
    since, timeline, known = feed.unbroken_since, feed.timeline, feed.known
    (row,) = await connection.fetch(_LOOK, timeline)
    if row["revision"] < known and row["ended"] is None:  # nobody has written here since it went back in time
        await connection.execute(_BEGIN, known)
        (row,) = await connection.fetch(_LOOK, timeline)
    if (feed.unbroken_since, feed.timeline) != (since, timeline):  # another connection was quicker
        return
    lost_after, known = row["ended"], feed.known  # older connections may have delivered more meanwhile
    if lost_after is not None and lost_after < known:
        loss = Loss(row["timeline"], lost_after, known, feed.count_after(lost_after))
        logger.error("lost changes; starting the change feed anew", revision=lost_after, reason=str(loss))
        feed.start_anew(row["revision"], row["timeline"], loss)
    elif row["floor"] > feed.cursor:
        logger.error("change feed was away for longer than history is kept; starting it anew", revision=row["revision"])
        feed.start_anew(row["revision"], row["timeline"])
    else:
        feed.follow(row["timeline"])


async def is_lost(pool: asyncpg.Pool, revision: int) -> bool:
    """Return whether the revision was given out and lost, or never given out, before the newest timeline began."""
    found: bool = await pool.fetchval(_IS_LOST, revision)
    return found


async def forget(pool: asyncpg.Pool) -> None:
    """Delete the timelines that the floor has passed: all of their revisions are too old anyway."""
    await pool.execute(_FORGET)

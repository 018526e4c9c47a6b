"""Numbers of the database, computed when they are scraped: sizes, the last revision, how far the change feed is behind.

One query, whose cost does not depend on how much is stored: sizes are those of files, rows are the planner's estimate.
"""

from collections.abc import Iterable

import asyncpg

from app.metrics.instruments import Family, family
from app.store.change_feed import Feed
from app.store.errors import call_database

_QUERY = """
select c.relname as name, pg_total_relation_size(c.oid) as size, greatest(c.reltuples, 0)::bigint as rows,
    (select revision from counter) as revision, pg_database_size(current_database()) as whole,
    (select count(*) from (select from webhook_deliveries where failed_at is null limit $1) as w) as pending,
    (select count(*) from (select from webhook_deliveries where failed_at is not null limit $1) as w) as failed
from pg_class c where c.relkind = 'r'
    and c.relnamespace = (select relnamespace from pg_class where oid = 'counter'::regclass)
"""
MOST_COUNTED = 10_000  # messages to webhooks: to count more would take a scrape too long


class DatabaseMetrics:
    """The collector of one store."""

    def __init__(self, pool: asyncpg.Pool, feed: Feed) -> None:
        self._pool, self._feed = pool, feed

    async def collect(self) -> Iterable[Family]:
        """Return the families. Unavailable if the database is away."""
        rows = await call_database(self._pool.fetch(_QUERY, MOST_COUNTED))
        revision, whole = rows[0]["revision"], rows[0]["whole"]
        cursor = self._feed.cursor
        return [
            _one("jobplane_revision", "Last revision that the database has given out.", revision),
            _one(
                "jobplane_change_feed_lag_revisions",
                "Revisions that this process's change feed is behind the database.",
                max(0, revision - cursor),
            ),
            _one(
                "jobplane_change_feed_healthy",
                "1 while the change feed follows the database.",
                float(self._feed.broken is None),
            ),
            family(
                "apiserver_storage_size_bytes",
                "Size of the database, in bytes.",
                "gauge",
                [({"storage_cluster_id": "postgres"}, whole)],
            ),
            family(
                "jobplane_webhook_deliveries",
                f"Messages to webhooks that wait, and that no receiver has taken, as far as {MOST_COUNTED}.",
                "gauge",
                [({"state": state}, rows[0][state]) for state in ("pending", "failed")],
            ),
            family(
                "jobplane_table_size_bytes",
                "Size of a table with its indexes, in bytes.",
                "gauge",
                [({"table": row["name"]}, row["size"]) for row in rows],
            ),
            family(
                "jobplane_table_rows",
                "Rows of a table, as the database estimates them.",
                "gauge",
                [({"table": row["name"]}, row["rows"]) for row in rows],
            ),
        ]


def _one(name: str, help_: str, value: float) -> Family:
    return family(name, help_, "gauge", [({}, value)])

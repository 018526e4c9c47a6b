"""Node usage as agents last reported it: one row a node, nothing older. It may be lost; the next report comes soon."""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import NamedTuple

import asyncpg

from app.store.errors import call_database

# In the order of names, or two that write the same rows could lock each other out.
_WRITE = """insert into node_usage (node, reported_at, body)
    select node, $3, body from unnest($1::text[], $2::bytea[]) as given(node, body) order by node
    on conflict (node) do update set reported_at = excluded.reported_at, body = excluded.body"""
# By an array, which is made once: a subquery with a lock might be run for each row.
_FORGET = """delete from node_usage where node = any(array(
    select node from node_usage where reported_at < $1 for update skip locked))"""


class UsageReport(NamedTuple):
    """Report of an agent on a node, and when it came."""

    at: datetime
    body: bytes


class NodeUsageReports:
    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool

    async def write(self, bodies: Mapping[str, bytes], at: datetime, forget_before: datetime) -> None:
        """Replace the reports on these nodes; delete those on nodes that have sent none since `forget_before`."""
        await call_database(self._pool.execute(_WRITE, list(bodies), list(bodies.values()), at))
        await call_database(self._pool.execute(_FORGET, forget_before))

    async def read(self, nodes: Collection[str], since: datetime) -> dict[str, UsageReport]:
        """The reports on these nodes since then, by node."""
        sql = "select node, reported_at, body from node_usage where node = any($1::text[]) and reported_at >= $2"
        rows = await call_database(self._pool.fetch(sql, list(nodes), since))
        return {row["node"]: UsageReport(row["reported_at"], row["body"]) for row in rows}

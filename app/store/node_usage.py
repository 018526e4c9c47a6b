"""Node usage as agents last reported it: one row a node, nothing older. It may be lost; the next report comes soon."""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import NamedTuple

import asyncpg

from app.store.errors import reaching

# In the order of names, or two that write the same rows could lock each other out.
_WRITE = """insert into node_usage (node, reported_at, body)
    select node, $3, body from unnest($1::text[], $2::bytea[]) as given(node, body) order by node
    on conflict (node) do update set reported_at = excluded.reported_at, body = excluded.body"""
_FORGET = """delete from node_usage where node in (
    select node from node_usage where reported_at < $1 for update skip locked)"""


class Reported(NamedTuple):
    """What an agent has said of a node, and when."""

    at: datetime
    body: bytes


class Usage:
    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool

    async def write(self, bodies: Mapping[str, bytes], at: datetime, forget_before: datetime) -> None:
        """Take the place of what was said of these nodes; nodes not heard of for long are forgotten."""
        await reaching(self._pool.execute(_WRITE, list(bodies), list(bodies.values()), at))
        await reaching(self._pool.execute(_FORGET, forget_before))

    async def read(self, nodes: Collection[str], since: datetime) -> dict[str, Reported]:
        """What was said of these nodes, by node, unless it is older."""
        sql = "select node, reported_at, body from node_usage where node = any($1::text[]) and reported_at >= $2"
        rows = await reaching(self._pool.fetch(sql, list(nodes), since))
        return {row["node"]: Reported(row["reported_at"], row["body"]) for row in rows}

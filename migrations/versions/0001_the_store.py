"""The store: counter, history, heads, tokens, logs, the commit function, and views for people who query.

Revision ID: 0001
Revises:
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

PLAIN = sa.Text(collation="C")

# kind -> view; <view> shows what is, <view>_history every version still kept.
VIEWS = {
    "jobs.batch": "jobs",
    "pods": "pods",
    "nodes": "nodes",
    "namespaces": "namespaces",
    "events": "events",
    "configmaps": "configmaps",
    "leases.coordination.k8s.io": "leases",
}


def upgrade() -> None:
    op.create_table(
        "counter",
        sa.Column(
            "id",
            sa.Integer,
            sa.CheckConstraint("id = 1", name="counter_is_one_row"),
            primary_key=True,
            autoincrement=False,
        ),
        sa.Column("revision", sa.BigInteger, nullable=False),
        sa.Column("floor", sa.BigInteger, nullable=False),
        postgresql_with={"fillfactor": "10"},
    )
    op.execute("insert into counter values (1, 1, 0)")
    op.create_table(
        "history",
        sa.Column("revision", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("kind", PLAIN, nullable=False),
        sa.Column("namespace", PLAIN, nullable=False),
        sa.Column("name", PLAIN, nullable=False),
        sa.Column("uid", sa.Text, nullable=False),
        sa.Column("change", sa.Text, nullable=False),
        sa.Column("marks", sa.Text, nullable=False),
        sa.Column("old_marks", sa.Text),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.Column("recorded_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
    )
    op.create_index("history_by_kind", "history", ["kind", "revision"])
    op.create_index("history_by_time", "history", ["recorded_at"], postgresql_using="brin")
    op.create_table(
        "heads",
        sa.Column("kind", PLAIN, primary_key=True),
        sa.Column("namespace", PLAIN, primary_key=True),
        sa.Column("name", PLAIN, primary_key=True),
        sa.Column("uid", sa.Text, nullable=False),
        sa.Column("revision", sa.BigInteger, nullable=False),
        sa.Column("deleting", sa.Boolean, nullable=False),
        sa.Column("owner", sa.Text),
        sa.Column("node", sa.Text),
        sa.Column("marks", sa.Text, nullable=False),
        postgresql_with={"fillfactor": "70"},
    )
    op.create_index("heads_by_owner", "heads", ["owner"], postgresql_where=sa.text("owner is not null"))
    op.create_index("heads_by_node", "heads", ["node"], postgresql_where=sa.text("node is not null"))
    op.create_index("heads_by_revision", "heads", ["revision"])
    op.create_table(
        "tokens",
        sa.Column("digest", sa.LargeBinary, primary_key=True),
        sa.Column("username", sa.Text, nullable=False),
        sa.Column("groups", postgresql.ARRAY(sa.Text), nullable=False),
        sa.Column("nodes", postgresql.ARRAY(sa.Text), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True)),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
    )
    op.create_table(
        "log_streams",
        sa.Column("pod_uid", sa.Text, primary_key=True),
        sa.Column("container", sa.Text, primary_key=True),
        sa.Column("attempt", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("namespace", sa.Text, nullable=False),
        sa.Column("pod", sa.Text, nullable=False),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("recorded_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
    )
    op.create_index("log_streams_by_pod", "log_streams", ["namespace", "pod"])
    op.create_table(
        "log_chunks",
        sa.Column("pod_uid", sa.Text, primary_key=True),
        sa.Column("container", sa.Text, primary_key=True),
        sa.Column("attempt", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("start", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
    )
    # The function as it was at this migration: later changes are migrations of their own.
    op.execute(COMMIT_FUNCTION)
    for kind, view in VIEWS.items():
        op.execute(
            f"create view {view} as select h.namespace, h.name, h.uid, h.revision, s.recorded_at,"
            f" convert_from(s.body, 'UTF8')::jsonb as object"
            f" from heads h join history s using (revision) where h.kind = '{kind}'"
        )
        op.execute(
            f"create view {view}_history as select namespace, name, uid, revision, change, recorded_at,"
            f" convert_from(body, 'UTF8')::jsonb as object from history where kind = '{kind}'"
        )


def downgrade() -> None:
    for view in VIEWS.values():
        op.execute(f"drop view {view}")
        op.execute(f"drop view {view}_history")
    op.execute("drop function commit_write_sets")
    for table in ("log_chunks", "log_streams", "tokens", "heads", "history", "counter"):
        op.drop_table(table)


COMMIT_FUNCTION = """
-- The one door. Applies write sets atomically, each whole or not at all, and gives every write its revision.
--
-- Item j of the arrays gets revision previous + j; refused items and guards leave harmless gaps.
-- changes: A create, M modify, D delete, G guard (no write).
-- expected: 0 must not exist; n > 0 must be at revision n; -1 must exist and not be on its way out.
create or replace function commit_write_sets(
    sets int[], kinds text[], namespaces text[], names text[], uids text[], changes text[], expected bigint[],
    bodies bytea[], labellings text[], old_labellings text[], owners text[], nodes text[], deletings boolean[], origin text,
    out previous bigint, out refused int[]
) language plpgsql as $$
declare
    bad_sets int[];
begin
    -- First statement: its row lock is the commit order, and under READ COMMITTED all that follows sees what
    -- was committed before the lock was granted. A check in this same statement would look too early.
    update counter set revision = revision + cardinality(sets) where id = 1
    returning revision - cardinality(sets) into previous;

    select array_agg(i.item::int order by i.item), array_agg(distinct i.in_set) into refused, bad_sets
    from unnest(sets, kinds, namespaces, names, expected) with ordinality as i(in_set, kind, namespace, name, expected, item)
    left join heads h on h.kind = i.kind and h.namespace = i.namespace and h.name = i.name
    where case
        when i.expected = 0 then h.revision is not null
        when i.expected = -1 then h.revision is null or h.deleting
        else h.revision is distinct from i.expected
    end;
    bad_sets := coalesce(bad_sets, '{}');
    if bad_sets @> sets then
        return;
    end if;

    insert into history (revision, kind, namespace, name, uid, change, marks, old_marks, body)
    select previous + item, kind, namespace, name, uid, change, mark, old_mark, body
    from unnest(sets, kinds, namespaces, names, uids, changes, labellings, old_labellings, bodies)
        with ordinality as i(in_set, kind, namespace, name, uid, change, mark, old_mark, body, item)
    where change <> 'G' and in_set <> all (bad_sets);

    if 'A' = any (changes) then
        insert into heads (kind, namespace, name, uid, revision, deleting, owner, node, marks)
        select kind, namespace, name, uid, previous + item, deleting, owner, node, mark
        from unnest(sets, kinds, namespaces, names, uids, changes, deletings, owners, nodes, labellings)
            with ordinality as i(in_set, kind, namespace, name, uid, change, deleting, owner, node, mark, item)
        where change = 'A' and in_set <> all (bad_sets);
    end if;
    if 'M' = any (changes) then
        update heads h set revision = previous + i.item, deleting = i.deleting, owner = i.owner, node = i.node, marks = i.mark
        from unnest(sets, kinds, namespaces, names, changes, deletings, owners, nodes, labellings)
            with ordinality as i(in_set, kind, namespace, name, change, deleting, owner, node, mark, item)
        where i.change = 'M' and i.in_set <> all (bad_sets)
            and h.kind = i.kind and h.namespace = i.namespace and h.name = i.name;
    end if;
    if 'D' = any (changes) then
        delete from heads h
        using unnest(sets, kinds, namespaces, names, changes) as i(in_set, kind, namespace, name, change)
        where i.change = 'D' and i.in_set <> all (bad_sets)
            and h.kind = i.kind and h.namespace = i.namespace and h.name = i.name;
    end if;
    -- Once a batch, not once a write: NOTIFY serialises commits across the fsync.
    perform pg_notify('changes', origin);
end $$;
"""

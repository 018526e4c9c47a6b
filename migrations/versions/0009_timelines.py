"""Timelines: which revisions were given out by which run of the database server, so that none is given out twice.

Revision ID: 0009
Revises: 0008
"""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "timelines",
        sa.Column("began", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("after", sa.BigInteger, nullable=False),
        sa.Column("recorded_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
    )
    op.execute("insert into timelines (began, after) values (0, 0)")
    # The newest one, for all who read history: an aggregate of the table would cost each read as much as its rows do.
    op.add_column("counter", sa.Column("timeline", sa.BigInteger, nullable=False, server_default="0"))
    op.create_table("server_runs", sa.Column("run", sa.Text, primary_key=True), prefixes=["UNLOGGED"])
    op.execute(SERVER_RUN)
    op.execute(BEGIN_TIMELINE)
    op.execute("insert into server_runs values (server_run())")


def downgrade() -> None:
    op.execute("drop function begin_timeline")
    op.execute("drop function server_run")
    op.drop_table("server_runs")
    op.drop_table("timelines")
    op.drop_column("counter", "timeline")


SERVER_RUN = """
-- Names this run of this server, with these very tables: another one after a restart, a promotion, or a restored dump.
create function server_run() returns text language sql stable as $$
    select concat_ws('/', extract(epoch from pg_postmaster_start_time()), d.oid, 'counter'::regclass::oid)
    from pg_database d where d.datname = current_database()
$$
"""

BEGIN_TIMELINE = """
-- Called on each connection before it writes. Begins a new timeline if this server run has none yet, or if the caller knows a
-- revision that the counter has not reached: then the database went back in time.
--
-- The table server_runs is unlogged, so it is empty after a crash, in a promoted standby and in a restored base backup. The
-- first revision of a timeline is the time in microseconds: two restores of one backup get different numbers.
create function begin_timeline(known bigint) returns void language plpgsql as $$
declare
    last bigint;
    first bigint;
    is_known boolean;
begin
    select revision into last from counter where id = 1 for update;
    is_known := exists (select from server_runs where run = server_run());
    if is_known and known <= last then
        return;
    end if;
    first := greatest(greatest(known, last) + 1000000, (extract(epoch from clock_timestamp()) * 1000000)::bigint);
    insert into timelines (began, after) values (first, last);
    -- Within one run nobody can tell from where on its revisions were given out twice: none before is good any more.
    update counter set revision = first, timeline = first, floor = case when is_known then first else floor end where id = 1;
    delete from server_runs;
    insert into server_runs values (server_run());
    perform pg_notify('changes', 'timeline');
end $$
"""

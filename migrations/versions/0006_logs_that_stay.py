"""Logs that stay for a while, up to a size: where each begins, whose Job wrote it, and when its container ended.

Revision ID: 0006
Revises: 0005
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("log_streams", sa.Column("kept_from", sa.BigInteger, nullable=False, server_default="0"))
    op.add_column("log_streams", sa.Column("job", sa.Text, nullable=False, server_default=""))
    op.add_column("log_streams", sa.Column("ended_at", sa.DateTime(timezone=True)))
    op.create_index("log_streams_by_job", "log_streams", ["namespace", "job"], postgresql_where=sa.text("job <> ''"))
    op.create_index("log_streams_by_end", "log_streams", ["ended_at"], postgresql_where=sa.text("ended_at is not null"))
    op.create_index("log_streams_open", "log_streams", ["pod_uid"], postgresql_where=sa.text("ended_at is null"))
    # What is stored stays readable, whichever way it was compressed. Postgres 13 knows no choice, some builds no lz4.
    op.execute("""
        do $$ begin
            alter table log_chunks alter column data set compression lz4;
        exception when feature_not_supported or syntax_error or invalid_parameter_value then null;
        end $$
    """)


def downgrade() -> None:
    op.execute("""
        do $$ begin
            alter table log_chunks alter column data set compression default;
        exception when feature_not_supported or syntax_error then null;
        end $$
    """)
    for index in ("log_streams_open", "log_streams_by_end", "log_streams_by_job"):
        op.drop_index(index, "log_streams")
    for column in ("ended_at", "job", "kept_from"):
        op.drop_column("log_streams", column)

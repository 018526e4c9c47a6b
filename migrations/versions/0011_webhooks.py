"""Webhooks: messages about Jobs that have ended, kept until a receiver has taken them.

Revision ID: 0011
Revises: 0010
"""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "webhook_cursor",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.CheckConstraint("id = 1", name="webhook_cursor_is_one_row"),
    )
    op.create_table(
        "webhook_deliveries",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("namespace", sa.Text(collation="C"), nullable=False),
        sa.Column("webhook", sa.Text(collation="C"), nullable=False),
        sa.Column("job", sa.Text(), nullable=False),
        sa.Column("job_uid", sa.Text(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("recorded_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("attempts", sa.Integer(), server_default="0", nullable=False),
        sa.Column("next_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("failed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("error", sa.Text(), server_default="", nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(
        "webhook_deliveries_by_end",
        "webhook_deliveries",
        ["failed_at"],
        unique=False,
        postgresql_where=sa.text("failed_at is not null"),
    )
    op.create_index(
        "webhook_deliveries_by_time",
        "webhook_deliveries",
        ["next_at"],
        unique=False,
        postgresql_where=sa.text("failed_at is null"),
    )
    op.create_index("webhook_deliveries_by_webhook", "webhook_deliveries", ["namespace", "webhook"], unique=False)


def downgrade() -> None:
    op.drop_index("webhook_deliveries_by_webhook", table_name="webhook_deliveries")
    op.drop_index(
        "webhook_deliveries_by_time", table_name="webhook_deliveries", postgresql_where=sa.text("failed_at is null")
    )
    op.drop_index(
        "webhook_deliveries_by_end", table_name="webhook_deliveries", postgresql_where=sa.text("failed_at is not null")
    )
    op.drop_table("webhook_deliveries")
    op.drop_table("webhook_cursor")

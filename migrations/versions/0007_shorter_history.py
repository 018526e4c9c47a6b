"""A floor of their own for Secrets, whose history is short; and an index on the deletions of namespaces and nodes.

Revision ID: 0007
Revises: 0006
"""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("counter", sa.Column("secrets_floor", sa.BigInteger, nullable=False, server_default="0"))
    op.create_index(
        "history_of_ends",
        "history",
        ["kind", "name", "revision"],
        postgresql_where=sa.text("change = 'D' and kind in ('namespaces', 'nodes')"),
    )


def downgrade() -> None:
    op.drop_index("history_of_ends", "history")
    op.drop_column("counter", "secrets_floor")

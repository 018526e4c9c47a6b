"""Tokens have an id by which they are listed and revoked; join tokens have a number of uses; files hold one token each.

Revision ID: 0008
Revises: 0007
"""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

_ID = """case when starts_with(username, 'system:bootstrap:') then substr(username, 18)
    else encode(substring(digest from 1 for 6), 'hex') end"""


def upgrade() -> None:
    op.add_column("tokens", sa.Column("id", sa.Text, sa.Computed(_ID, persisted=True)))
    op.add_column("tokens", sa.Column("uses", sa.Integer))
    op.add_column("tokens", sa.Column("node_life", sa.Interval))
    op.add_column("tokens", sa.Column("file", sa.Text, nullable=False, server_default=""))
    op.add_column("tokens", sa.Column("revoked", sa.Boolean, nullable=False, server_default="false"))
    op.create_index("tokens_by_id", "tokens", ["id"])


def downgrade() -> None:
    op.execute("delete from tokens where revoked")  # or they would be good again
    op.drop_index("tokens_by_id", "tokens")
    for column in ("revoked", "file", "node_life", "uses", "id"):
        op.drop_column("tokens", column)

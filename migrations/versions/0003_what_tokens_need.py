"""Tokens of service accounts: they end with their account, and say more about their holder.

Revision ID: 0003
Revises: 0002
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    texts, document = postgresql.ARRAY(sa.Text), postgresql.JSONB
    op.add_column("tokens", sa.Column("uid", sa.Text, nullable=False, server_default=""))
    op.add_column("tokens", sa.Column("extra", document, nullable=False, server_default="{}"))
    op.add_column("tokens", sa.Column("audiences", texts, nullable=False, server_default="{}"))
    op.add_column("tokens", sa.Column("needs", document, nullable=False, server_default="[]"))
    op.create_index("tokens_by_expiry", "tokens", ["expires_at"], postgresql_where=sa.text("expires_at is not null"))


def downgrade() -> None:
    op.drop_index("tokens_by_expiry", "tokens")
    for column in ("needs", "audiences", "extra", "uid"):
        op.drop_column("tokens", column)

"""Data keys: what encrypts Secrets, wrapped under a master key.

Revision ID: 0012
Revises: 0011
"""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "data_keys",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("master", sa.Text(), nullable=False),
        sa.Column("wrapped", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("active_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )


def downgrade() -> None:
    # Without the keys, nothing could ever read what is encrypted under them.
    op.execute("""do $$ begin
        if exists (select from history where kind = 'secrets' and substring(body from 1 for 4) = '\\x006a7065') then
            raise 'Secrets are encrypted: run `jobplane secrets decrypt` first, and wait until it is done';
        end if;
    end $$""")
    op.drop_table("data_keys")

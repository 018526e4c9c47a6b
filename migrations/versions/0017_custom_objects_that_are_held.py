"""Custom objects that controllers hold are found by an index: there may be a million that they do not hold.

The names of their kinds have two dots at least, as a group has one. Few built-in kinds do.

Revision ID: 0017
Revises: 0016
"""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index(
        "heads_awake_custom",
        "heads",
        ["kind", "namespace", "name"],
        postgresql_where=sa.text("dormant is null and kind like '%.%.%'"),
    )


def downgrade() -> None:
    op.drop_index("heads_awake_custom", table_name="heads")

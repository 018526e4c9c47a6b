"""Dormant objects are found by their labels: there may be a million of them, and a list wants a few.

Only they are in the index: to keep it costs nothing while a pod lives.

Revision ID: 0015
Revises: 0014
"""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index(
        "heads_by_label",
        "heads",
        [sa.text(LABELS)],
        postgresql_using="gin",
        postgresql_where=sa.text("dormant is not null"),
    )


def downgrade() -> None:
    op.drop_index("heads_by_label", table_name="heads")


LABELS = """regexp_split_to_array(split_part(marks, '"fields":{', 1), '[{},]+')"""

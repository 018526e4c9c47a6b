"""Alembic's entry. `app.store.schema.migrate` hands over a connection in the config's attributes; else its `sqlalchemy.url` counts."""

from alembic import context
from sqlalchemy import create_engine
from sqlalchemy.engine import Connection
from sqlalchemy.pool import NullPool

import migrations.autogenerate  # noqa: F401 - registers what compares functions and views
from app.store.schema.tables import METADATA


def run(connection: Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=METADATA,
        compare_type=True,
        compare_server_default=True,
        transaction_per_migration=True,
    )
    with context.begin_transaction():
        context.run_migrations()


given = context.config.attributes.get("connection")
if given is not None:
    run(given)
else:
    engine = create_engine(context.config.get_main_option("sqlalchemy.url") or "", poolclass=NullPool)
    with engine.connect() as opened:
        run(opened)

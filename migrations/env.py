"""Alembic's entry: `jobplane migrate` and the tests hand over a connection or a URL in the config's attributes."""

from alembic import context
from sqlalchemy import create_engine
from sqlalchemy.engine import Connection
from sqlalchemy.pool import NullPool

from app.store.tables import METADATA


def run(connection: Connection) -> None:
    context.configure(
        connection=connection, target_metadata=METADATA, compare_type=True, transaction_per_migration=True
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

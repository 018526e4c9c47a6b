"""Writes a migration from what differs between the newest one and the tables in app/store: `make migration M="..."`.

A Postgres of its own is brought to the newest migration; Alembic compares it with `app/store/schema/tables.py` and
`app/store/schema/schema.py`. Read what comes out: a rename looks like a drop and an addition, and data stays where it is.
"""

import asyncio
import sys
import tempfile
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.operations.ops import MigrationScript

from app.postgres.embedded_postgres import Postgres
from app.store.schema.migrate import MIGRATIONS, migrate, newest, run_alembic


async def write_migration(dsn: str, message: str, migrations: Path = MIGRATIONS) -> None:
    """Write the migration that leads from this database, which has all others, to the tables as they are declared."""
    number = f"{int(newest(migrations)) + 1:04}"

    def revise(config: Config) -> None:
        command.revision(config, message, autogenerate=True, rev_id=number, process_revision_directives=_skip_empty)

    await run_alembic(dsn, revise, migrations)
    for path in (migrations / "versions").glob(f"{number}_*.py"):
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join(line for line in lines if not line.strip().startswith("# ###")))  # Alembic's remarks


def _skip_empty(_context: object, _revision: object, directives: list[MigrationScript]) -> None:
    """Where nothing differs, no migration is written."""
    if directives[0].upgrade_ops is not None and directives[0].upgrade_ops.is_empty():
        directives.clear()


async def main(message: str) -> None:
    before = newest()
    with tempfile.TemporaryDirectory(prefix="jobplane-migration-") as folder:
        Path(folder).chmod(0o711)  # as root, Postgres runs as somebody else
        postgres = Postgres(Path(folder) / "pg")
        dsn = await postgres.start()
        try:
            await migrate(dsn)
            await write_migration(dsn, message)
        finally:
            await postgres.stop()
    if newest() == before:
        sys.exit("nothing differs: change app/store/schema/tables.py or app/store/schema/schema.py first")


if __name__ == "__main__":
    if not sys.argv[1:] or not sys.argv[1].strip():
        sys.exit('usage: make migration M="what changes"')
    asyncio.run(main(sys.argv[1].strip()))

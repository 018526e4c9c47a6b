"""The schema of the database, declared once, and the way to it from any older version.

What belongs here: `tables` (tables, columns, indexes), `schema` (functions, views, settings of columns), `sql/` (the functions,
one a file), `migrate` (brings a database to this version). Migrations themselves lie in `migrations/`, made by `make migration`
from what differs (CONTRIBUTING.md).

May import: `app.store.errors`, SQLAlchemy and Alembic; what serves imports only `migrate`, which imports them when it is called.
Imported by: `app.main`, `app.store.database_wait`, `migrations/`.
Start reading: `tables`, `sql/commit_write_sets.sql`.
"""

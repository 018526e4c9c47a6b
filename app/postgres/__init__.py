"""Embedded Postgres: the database server that `jobplane up` and the tests start themselves, with no port and no service to set
up.

What belongs here: `embedded_postgres` (start, stop, recovery), `postgres_binaries` (where the server's programs are),
`postgres_folder` (its data folder, owner and lock), `postgres_password`, `postgres_launch` (the script that gives up root and
executes the server; it runs without the rest of Jobplane, and imports nothing of it).

It stands apart from `app.store`, so that `jobplane up` loads none of what its children need.
May import: the standard library. Imported by: `app.main`, the tests.
Start reading: `embedded_postgres`.
"""

#!/bin/sh
# The part of the official image's entry point that docker-compose.yml relies on: a database for POSTGRES_USER, made once.
set -eu
as_postgres() { setpriv --reuid=postgres --regid=postgres --init-groups "$@"; }
install -d -o postgres -g postgres -m 0700 "$PGDATA"
if [ ! -s "$PGDATA/PG_VERSION" ]; then
    install -o postgres -m 0600 /dev/null /tmp/password
    printf '%s' "$POSTGRES_PASSWORD" >/tmp/password
    as_postgres initdb --pgdata="$PGDATA" --username="$POSTGRES_USER" --pwfile=/tmp/password \
        --auth-host=scram-sha-256 --encoding=UTF8 --no-locale --no-sync
    rm /tmp/password
    echo "create database $POSTGRES_USER" | as_postgres postgres --single -D "$PGDATA" postgres
    echo 'host all all all scram-sha-256' >>"$PGDATA/pg_hba.conf"
fi
exec setpriv --reuid=postgres --regid=postgres --init-groups "$@" -D "$PGDATA" -c listen_addresses='*'

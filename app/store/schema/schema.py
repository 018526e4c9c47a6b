"""Schema beyond tables: functions, views and how columns are compressed, which SQLAlchemy does not carry.

Together with `app.store.schema.tables` the one place that says how the database looks. `migrations/autogenerate.py` compares a
database with it; tables that are made from `METADATA` get these with them. Functions are in `sql/`, one a file.
"""

from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import Connection, Table, event

from app.store.packing.packing import DICTIONARY
from app.store.schema.tables import (
    HEADS,
    JOB_RECORD_ATTEMPTS,
    JOB_RECORD_OMISSIONS,
    JOB_RECORD_RESTARTS,
    JOB_RECORDS,
    LOG_CHUNKS,
    METADATA,
    VERSIONS,
)

_SQL = Path(__file__).parent / "sql"


class SchemaObject(NamedTuple):
    """A function, a view, or a setting of a column.

    create:     statement that makes it what it is to be, whatever it is now.
    drop:       statement that takes it away.
    definition: query for the statement that makes it what it is now; null if it is not there.
    """

    name: str
    create: str
    drop: str
    definition: str


def function(name: str, create: str = "") -> SchemaObject:
    """A function by its name, of which there is one."""
    definition = f"select pg_get_functiondef(to_regproc('{name}'))"
    return SchemaObject(f"function {name}", create, f"drop function {name}", definition)


def view(name: str, query: str = "") -> SchemaObject:
    create = f"create or replace view {name} as {query}"
    definition = f"select 'create or replace view {name} as' || pg_get_viewdef(to_regclass('{name}'))"
    return SchemaObject(f"view {name}", create, f"drop view {name}", definition)


def _compression(table: Table, column: str) -> SchemaObject:
    """By lz4 where the server can: reading a long list costs a third less than with Postgres' own."""
    alter = f"alter table {table.name} alter column {column} set compression"
    # Postgres 13 knows no choice, and has no such column in its catalogue; some builds have no lz4.
    create = f"""do $$ begin
    {alter} lz4;
exception when feature_not_supported or syntax_error or invalid_parameter_value then null;
end $$"""
    drop = f"""do $$ begin
    {alter} default;
exception when feature_not_supported or syntax_error then null;
end $$"""
    definition = f"""select case when to_jsonb(a)->>'attcompression' = 'l' then '{alter} lz4' else '{alter} default' end
        from pg_attribute a where a.attrelid = to_regclass('{table.name}') and a.attname = '{table.c[column].name}'"""
    return SchemaObject(f"compression of {table.name}.{column}", create, drop, definition)


_DICTIONARY = f"""create or replace function packing_dictionary(number int) returns bytea language sql immutable as $$
    select case number when 1 then convert_to($dictionary${DICTIONARY.decode()}$dictionary$, 'UTF8') end
$$"""
# As the table was before versions were packed. Rows can be deleted, and columns changed that are shown as they are.
_UNPACKED = f"""select revision, kind, namespace, name, uid, change,
    case when marks is null then convert_from(version_part(body, 1), 'UTF8') else marks end as marks,
    case when marks is null then nullif(convert_from(version_part(body, 2), 'UTF8'), '') else old_marks end as old_marks,
    case when marks is null then version_part(body, 3) else body end as body, recorded_at, previous
from {VERSIONS.name}"""

# kind -> view; <view> shows what is, <view>_history every version still kept. For people who query.
VIEWS = {
    "jobs.batch": "jobs",
    "pods": "pods",
    "nodes": "nodes",
    "namespaces": "namespaces",
    "events": "events",
    "configmaps": "configmaps",
    "leases.coordination.k8s.io": "leases",
}
_VIEW = f"""select h.namespace, h.name, h.uid, h.revision, s.recorded_at,
    convert_from(s.body, 'UTF8')::jsonb as object
from {HEADS.name} h join history s using (revision) where h.kind = '{{kind}}'"""
_HISTORY_VIEW = """select namespace, name, uid, revision, change, recorded_at,
    convert_from(body, 'UTF8')::jsonb as object
from history where kind = '{kind}'"""

# Jobs that have ended and their pods, whether they are still there or not. For people who query.
_FINISHED_JOBS = f"""select r.namespace, r.name, r.uid, r.result, r.labels, r.created_at, r.started_at, r.ended_at,
    r.deleted_at, r.rerun_of, coalesce(o.attempts, 0) as attempts_omitted, convert_from(
        case when substring(r.body from 1 for 1) = '\\x01' then version_part(r.body, 3) else r.body end, 'UTF8')::jsonb as object
from {JOB_RECORDS.name} r left join {JOB_RECORD_OMISSIONS.name} o on (o.namespace, o.job_uid) = (r.namespace, r.uid)"""
_JOB_ATTEMPTS = f"""select namespace, job, job_uid, pod, pod_uid, index, node, created_at, started_at, ended_at, phase,
    exit_code, reason, message, peak_memory_bytes, restart_count
from {JOB_RECORD_ATTEMPTS.name}"""
_JOB_ATTEMPT_RESTARTS = f"""select a.namespace, a.job, a.job_uid, a.pod, a.pod_uid, r.container, r.run, r.started_at, r.ended_at,
    r.exit_code, r.reason, r.message
from {JOB_RECORD_RESTARTS.name} r join {JOB_RECORD_ATTEMPTS.name} a using (pod_uid)"""

SCHEMA_OBJECTS = (
    function("packing_dictionary", _DICTIONARY),
    *(function(path.stem, path.read_text().strip()) for path in sorted(_SQL.glob("*.sql"))),
    view("history", _UNPACKED),
    *(view(name, _VIEW.format(kind=kind)) for kind, name in VIEWS.items()),
    *(view(f"{name}_history", _HISTORY_VIEW.format(kind=kind)) for kind, name in VIEWS.items()),
    view("finished_jobs", _FINISHED_JOBS),
    view("job_attempts", _JOB_ATTEMPTS),
    view("job_attempt_restarts", _JOB_ATTEMPT_RESTARTS),
    _compression(VERSIONS, "body"),
    _compression(LOG_CHUNKS, "data"),
)


@event.listens_for(METADATA, "after_create")
def _create_all(_: object, connection: Connection, **_kwargs: Any) -> None:
    """What `METADATA.create_all` makes is whole."""
    for each in SCHEMA_OBJECTS:
        connection.exec_driver_sql(each.create)

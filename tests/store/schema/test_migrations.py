"""The schema: up, down and up again, as the tables say it, with views that people can query."""

import asyncio
import importlib
import json
import os
import pkgutil
import re
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from secrets import token_hex
from typing import Any
from urllib.parse import quote

import asyncpg
import pytest
from alembic import command
from alembic.config import Config
from msgspec.structs import replace
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

import app.store
import app.store.schema.schema  # with it, METADATA makes functions and views, too
from app.registry.verbs import objects
from app.registry.verbs.objects import Registry
from app.store import Holder, SelectorIndex, open_store
from app.store.database_wait import reachable
from app.store.encryption.master_keys import KeyFile
from app.store.packing.packing import pack_body
from app.store.schema.migrate import MIGRATIONS, migrate, newest, run_alembic
from app.store.schema.tables import METADATA
from scripts.make_migration import write_migration
from tests.conftest import database, migrated_server
from tests.registry.examples import JOBS, PODS, a_job, a_pod, create, named
from tests.store.encryption.test_master_keys import key_file, new_line
from tests.store.writes import create as a_thing

CATALOG = """
    select 'column', table_name, column_name, concat_ws(' ', ordinal_position, data_type, udt_name, collation_name,
            is_nullable, column_default, is_generated, generation_expression,
            col_description(to_regclass(table_name), ordinal_position))
        from information_schema.columns where table_schema = 'public'
    union all select 'storage', c.relname, a.attname, a.attstorage::text || coalesce(to_jsonb(a)->>'attcompression', '')
        from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
        where c.relnamespace = 'public'::regnamespace and c.relkind = 'r'
    union all select 'index', tablename, indexname, indexdef from pg_indexes where schemaname = 'public'
    union all select 'constraint', conrelid::regclass::text, conname, pg_get_constraintdef(oid)
        from pg_constraint where connamespace = 'public'::regnamespace and contype <> 'n'
    union all select 'function', proname, pg_get_functiondef(oid), '' from pg_proc
        where pronamespace = 'public'::regnamespace
    union all select 'view', viewname, definition, '' from pg_views where schemaname = 'public'
    union all select 'trigger', tgrelid::regclass::text, tgname, pg_get_triggerdef(oid) from pg_trigger where not tgisinternal
    union all select 'table', relname, relpersistence::text, array_to_string(reloptions, ',') from pg_class
        where relnamespace = 'public'::regnamespace and relkind = 'r'
    order by 1, 2, 3, 4"""


async def query(dsn: str, sql: str, *values: Any) -> list[tuple[Any, ...]]:
    connection = await asyncpg.connect(dsn)
    try:
        return [tuple(row) for row in await connection.fetch(sql, *values)]
    finally:
        await connection.close()


async def schema(dsn: str) -> list[tuple[Any, ...]]:
    """All that migrations make; alembic's own table aside."""
    return [row for row in await query(dsn, CATALOG) if row[1] != "alembic_version"]


async def seed(dsn: str) -> None:
    async with open_store(dsn) as store:
        await store.commit([a_thing("a"), a_thing("b")])
        await store.tokens.keep(b"digest", Holder("ada", ["people"]))


@pytest.mark.parametrize("seeded", [pytest.param(False, id="empty"), pytest.param(True, id="seeded")])
async def test_up_down_and_up_again_leads_to_the_same_schema(empty: str, seeded: bool) -> None:
    await migrate(empty)
    first = await schema(empty)
    if seeded:
        await seed(empty)

    await migrate(empty, "base")
    assert await schema(empty) == []

    await migrate(empty)
    assert await schema(empty) == first
    await seed(empty)


async def test_no_downgrade_takes_the_keys_of_secrets_that_are_encrypted(empty: str, tmp_path: Path) -> None:
    await migrate(empty)
    async with open_store(empty, keys=KeyFile(key_file(tmp_path / "keys", new_line()))) as store:
        await store.commit([a_thing("a", kind="secrets")])

    with pytest.raises(DBAPIError, match="run `jobplane secrets decrypt` first"):
        await migrate(empty, "base")
    assert await query(empty, "select count(*) from data_keys") == [(1,)]


async def test_tokens_of_before_have_ids_by_which_they_are_revoked(empty: str) -> None:
    await migrate(empty, "0006")
    keep = "insert into tokens (digest, username, groups, nodes) values ($1, $2, '{}', '{}')"
    await query(empty, keep, b"0123456789", "ada")
    await query(empty, keep, b"9876543210", "system:bootstrap:x7k2pq")

    await migrate(empty)

    assert await query(empty, "select id, uses from tokens order by digest") == [
        ("303132333435", None),
        ("x7k2pq", None),
    ]


async def test_groups_of_before_are_those_of_kubernetes_1_37_with_their_pods(empty: str) -> None:
    await migrate(empty, "0015")
    owner = {"apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup", "name": "g", "uid": "u"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "ownerReferences": [owner]}}
    group = {"apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup", "spec": {"disruptionMode": "PodGroup"}}
    for number, (kind, obj) in enumerate((("pods", pod), ("podgroups.scheduling.k8s.io", group)), start=1):
        columns = "kind, namespace, name, uid, marks, revision"
        values = "$1, 'default', 'x', 'u', '{}', $2"
        body = json.dumps(obj, separators=(",", ":")).encode()
        await query(
            empty, f"insert into history ({columns}, change, body) values ({values}, 'A', $3)", kind, number, body
        )
        await query(empty, f"insert into heads ({columns}, deleting) values ({values}, false)", kind, number)

    await migrate(empty)
    (pod_body,), (group_body,) = await query(empty, "select body from history order by revision")
    assert json.loads(pod_body)["metadata"]["ownerReferences"][0]["apiVersion"] == "scheduling.k8s.io/v1beta1"
    assert json.loads(group_body)["apiVersion"] == "scheduling.k8s.io/v1beta1"
    assert json.loads(group_body)["spec"] == {"disruptionMode": {"all": {}}}

    await run_alembic(empty, lambda config: command.downgrade(config, "0015"))
    assert [json.loads(body) for (body,) in await query(empty, "select body from history order by revision")] == [
        pod,
        group,
    ]


async def test_the_way_down_unpacks_versions_and_records(empty: str) -> None:
    await migrate(empty)
    thing = replace(a_thing("a", kind="events"), old_selector_index=SelectorIndex({"old": "yes"}))
    async with open_store(empty) as store:
        await store.commit([thing])
    packed, body = pack_body(thing.body, thing.key.kind), thing.body
    await query(empty, "grant select on pods to public")
    await query(
        empty,
        """insert into job_records (uid, namespace, name, labels, result, ended_at, revision, body)
            values ('u', 'default', 'pi', '{}', 'Complete', now(), 1, $1)""",
        packed,
    )
    kept = "insert into job_record_events (involved_uid, revision, bodies) values ('u', 1, $1)"
    await query(empty, kept, [packed, body])
    assert await query(empty, "select object->'metadata'->>'name' from finished_jobs") == [("a",)]

    await run_alembic(empty, lambda config: command.downgrade(config, "0017"))

    assert await query(empty, "select marks, old_marks, body from history") == [
        ("{}", '{"labels":{"old":"yes"}}', body)
    ]
    assert await query(empty, "select body from job_records") == [(body,)]
    assert await query(empty, "select bodies from job_record_events") == [([body, body],)]
    assert await query(empty, "select object->'metadata'->>'name' from finished_jobs") == [("a",)]
    assert await query(empty, "select has_table_privilege('public', 'pods', 'select')") == [(True,)]


async def test_migrating_what_is_migrated_changes_nothing(dsn: str) -> None:
    await seed(dsn)

    await migrate(dsn)

    assert await query(dsn, "select count(*) from heads") == [(2,)]


async def test_many_may_migrate_at_once(empty: str) -> None:
    await asyncio.gather(*(migrate(empty) for _ in range(4)))

    assert await query(empty, "select revision, floor from counter") == [(1, 0)]


async def test_alembic_finds_no_difference_between_the_tables_in_the_code_and_those_of_the_migrations(dsn: str) -> None:
    await run_alembic(dsn, command.check)


@pytest.fixture
async def declared(empty: str) -> str:
    """A database that is made of what the code declares, without any migration."""
    engine = create_async_engine(make_url(empty).set(drivername="postgresql+asyncpg"), poolclass=NullPool)
    async with engine.begin() as connection:
        await connection.run_sync(METADATA.create_all)
    await engine.dispose()
    return empty


async def test_what_the_code_declares_is_what_the_migrations_make(dsn: str, declared: str) -> None:
    """Also where Alembic does not look: collations, storage, conditions of indexes, unlogged tables."""
    assert await schema(declared) == await schema(dsn)


async def test_statements_name_columns_that_are_declared(declared: str) -> None:
    statements = re.compile(r"\s*(select|insert|update|delete|with)\s")
    modules = [importlib.import_module(each.name) for each in pkgutil.walk_packages(app.store.__path__, "app.store.")]
    found = {
        text
        for module in modules
        for text in vars(module).values()
        if isinstance(text, str) and statements.match(text) and "{" not in text.replace("'{", "")
    }
    assert len(found) > 30
    connection = await asyncpg.connect(declared)
    try:
        for text in found:
            await connection.prepare(text)
    finally:
        await connection.close()


CHANGES = {
    "an index is missing": "drop index heads_by_revision",
    "a column is missing": "alter table tokens drop column node_life",
    "a column has another default": "alter table log_streams alter column job set default 'none'",
    "a column is too much": "alter table node_usage add column more text",
    "a table is too much": "create table more (id int primary key)",
    "a table is missing": "drop table node_usage",
    "a function is missing": "drop function begin_timeline",
    "a function is another one": "create or replace function server_run() returns text language sql as $$ select 'run' $$",
    "a function is too much": "create function more() returns text language sql as $$ select 'E''\\n' $$",
    "a view is missing": "drop view jobs",
    "a view is another one": "create or replace view jobs_history as select * from (select * from jobs_history) x limit 1",
    "a view is too much": "create view more as select * from nodes",
    "a column is compressed in another way": "alter table versions alter column body set compression default",
}


@pytest.fixture(scope="module")
def machine_server() -> Iterator[str]:
    """The machine's Postgres, which has two ways of compression where that of the wheel has one."""
    with migrated_server(os.environ) as dsn:
        yield dsn


@pytest.fixture
async def migrated(machine_server: str) -> AsyncIterator[str]:
    """A migrated database of the test's own, which need not be as it was in the end."""
    name = f"copy_{token_hex(4)}"
    await query(machine_server, f"create database {name} template postgres")
    yield database(machine_server, name)
    await query(machine_server, f"drop database {name} with (force)")


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
async def test_a_difference_becomes_a_migration_that_goes_up_down_and_up_again(
    migrated: str, tmp_path: Path, change: str
) -> None:
    whole = await schema(migrated)
    await query(migrated, change)
    changed = await schema(migrated)
    if changed == whole and "compression" in change:
        pytest.skip("this Postgres has one way of compression only")
    migrations = Path(shutil.copytree(MIGRATIONS, tmp_path / "migrations"))

    await write_migration(migrated, "what differs", migrations)

    async def go(step: Callable[[Config, str], None], to: str) -> list[tuple[Any, ...]]:
        await run_alembic(migrated, lambda config: step(config, to), migrations)
        return unordered(await schema(migrated))

    assert newest(migrations) == f"{int(newest()) + 1:04}"
    assert await go(command.upgrade, "head") == unordered(whole)
    await run_alembic(migrated, command.check, migrations)
    assert await go(command.downgrade, "-1") == unordered(changed)
    assert await go(command.upgrade, "head") == unordered(whole)


def unordered(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Without the places of columns: one that is added comes last."""
    return sorted((*row[:3], re.sub(r"^\d+ ", "", row[3] or "")) for row in rows)


async def test_where_nothing_differs_no_migration_is_written(dsn: str, tmp_path: Path) -> None:
    migrations = Path(shutil.copytree(MIGRATIONS, tmp_path / "migrations"))

    await write_migration(dsn, "nothing", migrations)

    assert newest(migrations) == newest()


async def test_reachable_waits_for_the_tables(empty: str) -> None:
    waiting = asyncio.ensure_future(reachable(empty))
    await reachable(empty, migrated=False)
    assert not waiting.done()

    await migrate(empty, "0001")  # which has tables, but not all of them
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await reachable(empty)
    assert not waiting.done()

    await migrate(empty)

    async with asyncio.timeout(10):
        await waiting


async def test_people_can_query_jobs_pods_and_their_history(registry: Registry, dsn: str) -> None:
    await create(registry, JOBS, a_job("pi", parallelism=3, completions=3))
    await create(registry, PODS, a_pod("hello"))
    await objects.edit(registry, JOBS, "default", "pi", lambda job: named(replace(job), labels={"team": "physics"}))

    wide = (
        "select name, object->'metadata'->'labels'->>'team' from jobs where (object->'spec'->>'parallelism')::int > 2"
    )
    assert await query(dsn, wide) == [("pi", "physics")]
    assert await query(dsn, "select object->'status'->>'phase' from pods") == [("Pending",)]
    changes = "select change from jobs_history where namespace = $1 and name = $2 order by revision"
    assert await query(dsn, changes, "default", "pi") == [("A",), ("M",)]
    joined = """select j.name, count(h.*) from jobs j join jobs_history h using (uid) group by j.name"""
    assert await query(dsn, joined) == [("pi", 2)]


@pytest.mark.parametrize("separate", [False, True], ids=["hosts in the query", "hosts as in libpq"])
async def test_a_url_may_name_several_hosts(empty: str, separate: bool) -> None:
    """The first refuses connections, as the one of two does that is down."""
    url = make_url(empty)
    folder, port, passfile = (url.query[each] for each in ("host", "port", "passfile"))
    if separate:
        hosts = f"127.0.0.1:1,{quote(str(folder), safe='')}:{port}"
        dsn = f"postgresql://{url.username}@{hosts}/{url.database}?target_session_attrs=primary&passfile={passfile}"
    else:
        dsn = f"postgresql://{url.username}@/{url.database}?host=127.0.0.1,{folder}&port=1,{port}&passfile={passfile}"

    await migrate(dsn)

    assert await query(empty, "select revision from counter") == [(1,)]

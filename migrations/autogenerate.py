"""Alembic's autogenerate, for what SQLAlchemy does not carry: compares `app.store.schema.schema` with a database.

Imported by `env.py`, and so part of `alembic check` and of `make migration`. Each declared function, view and setting is
made in a savepoint, and Postgres is asked whether its definition is another one then: so texts are compared as Postgres
understands them.
"""

from typing import Any

from alembic.autogenerate import comparators, renderers
from alembic.autogenerate.api import AutogenContext
from alembic.operations.ops import ExecuteSQLOp, UpgradeOps
from alembic.util import DispatchPriority, PriorityDispatchResult
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from app.store.schema import schema
from app.store.schema.schema import SchemaObject

# What the database has, but for what belongs to an extension.
_FUNCTIONS = """select p.proname from pg_proc p where p.pronamespace = current_schema()::regnamespace
    and not exists (select from pg_depend d where d.objid = p.oid and d.deptype = 'e') order by 1"""
_VIEWS = """select c.relname from pg_class c where c.relkind = 'v' and c.relnamespace = current_schema()::regnamespace
    and not exists (select from pg_depend d where d.objid = c.oid and d.deptype = 'e') order by 1"""


class ReversibleSQL(ExecuteSQLOp):
    """A statement, and the one that takes it back."""

    def __init__(self, statement: str, back: str) -> None:
        super().__init__(statement)
        self._statement, self._back = statement, back

    def reverse(self) -> "ReversibleSQL":
        return ReversibleSQL(self._back, self._statement)

    def to_diff_tuple(self) -> tuple[Any, ...]:
        return "execute", self._statement


@renderers.dispatch_for(ReversibleSQL)
def _render(_: AutogenContext, operation: ReversibleSQL) -> str:
    """Line by line: Alembic indents what it writes, and a function's body would be another one."""
    lines = "\n".join(repr(line) for line in str(operation.sqltext).strip().splitlines(keepends=True))
    return f"op.execute(\n{lines}\n)"


@comparators.dispatch_for("schema", priority=DispatchPriority.LAST)
def _compare(context: AutogenContext, upgrade: UpgradeOps, _: object) -> PriorityDispatchResult:
    """What is dropped goes before tables change, what is made or replaced comes after them."""
    assert context.connection is not None
    declared = schema.SCHEMA_OBJECTS
    replaced = [operation for each in declared if (operation := _difference(context.connection, each))]
    dropped = _undeclared(context.connection, {each.name for each in declared})
    upgrade.ops[:] = [*dropped, *upgrade.ops, *replaced]
    return PriorityDispatchResult.CONTINUE


def _difference(connection: Connection, declared: SchemaObject) -> ReversibleSQL | None:
    before = connection.exec_driver_sql(declared.definition).scalar()
    savepoint = connection.begin_nested()
    try:
        connection.exec_driver_sql(declared.create)
        after = connection.exec_driver_sql(declared.definition).scalar()
    except DBAPIError:  # it needs tables as they are not yet, or columns of a view have gone: then it is another one
        after = None
    finally:
        savepoint.rollback()
    return None if before is not None and before == after else ReversibleSQL(declared.create, before or declared.drop)


def _undeclared(connection: Connection, declared: set[str]) -> list[ReversibleSQL]:
    functions = map(schema.function, connection.exec_driver_sql(_FUNCTIONS).scalars())
    views = map(schema.view, connection.exec_driver_sql(_VIEWS).scalars())
    return [
        ReversibleSQL(each.drop, str(connection.exec_driver_sql(each.definition).scalar()))
        for each in (*views, *functions)
        if each.name not in declared
    ]

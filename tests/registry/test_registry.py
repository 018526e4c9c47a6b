"""Registry: what it tells the API of the database."""

import ast
from dataclasses import replace
from pathlib import Path

from app import api
from app.registry.registry import Registry
from app.store import READ_ONLY, open_store
from tests.registry.examples import PODS, a_pod, create
from tests.store.rewinding import read_only


async def test_a_revision_that_was_given_out_is_reached_and_one_that_was_not_is_not(registry: Registry) -> None:
    await create(registry, PODS, a_pod("a"))
    last = await registry.revision()

    assert await registry.reach(last, 0.01)
    assert not await registry.reach(last + 1, 0.01)


async def test_a_database_that_takes_no_writes_is_not_ready(dsn: str, registry: Registry) -> None:
    assert await registry.database_fault() == ""

    async with read_only(dsn), open_store(dsn) as store:
        assert await replace(registry, store=store).database_fault() == READ_ONLY


def test_the_api_never_reaches_for_the_store() -> None:
    """As import-linter proves for imports."""
    found = [
        f"{path.name}:{node.lineno}"
        for path in Path(api.__file__).parent.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr == "store"
    ]
    assert found == []

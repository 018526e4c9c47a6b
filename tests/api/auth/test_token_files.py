"""The tokens that `up` writes into files: each file holds one that is good, and whoever held it before is out."""

from pathlib import Path

import pytest

from app.api.auth.authenticator import User, digest_of
from app.api.auth.token_files import AGENT_OVERLAP, folder_id, keep_files
from app.api.auth.tokens import StoredTokens, keep
from app.registry.verbs.objects import Registry
from app.settings import Settings
from app.store import Limits

NODE = "here"


async def user(registry: Registry, token: str) -> User | None:
    return await StoredTokens(registry).lookup(digest_of(token))


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    for name in ("admin", "agent"):
        (tmp_path / f"{name}.token").write_text(f"old-{name}\n")
    return Settings(data_dir=tmp_path, node_name=NODE)


def replaced(settings: Settings) -> None:
    for name in ("admin", "agent"):
        (settings.data_dir / f"{name}.token").write_text(f"new-{name}")


async def test_each_stands_for_what_it_is_for_and_no_more(registry: Registry, settings: Settings) -> None:
    await keep_files(registry, settings)

    admin, agent = await user(registry, "old-admin"), await user(registry, "old-agent")
    assert admin
    assert ("system:masters" in admin.groups, admin.nodes) == (True, ())
    assert agent
    assert (agent.name, agent.nodes) == ("system:node:here", (NODE,))
    assert [agent.is_node(each) for each in (NODE, "here-2", "elsewhere")] == [True, False, False]


@pytest.mark.parametrize(
    ("given", "nodes"),
    [
        pytest.param({"runtime": "simulated"}, ("simulated-*",), id="a pretended fleet"),
        pytest.param({"agent_nodes": "a,b-*", "runtime": "simulated"}, ("a", "b-*"), id="what it is told"),
        pytest.param({"agent_nodes": "a, b,"}, ("a", "b"), id="with spaces and a comma too many"),
        pytest.param({"agent_nodes": " , ", "node_name": "n"}, ("n",), id="commas alone"),
        pytest.param({"node_name": "n"}, ("n",), id="its own node"),
    ],
)
def test_an_agent_speaks_for(given: dict[str, str], nodes: tuple[str, ...]) -> None:
    assert Settings(**given).own_nodes == nodes


async def test_what_a_file_held_before_ends_when_a_process_starts(registry: Registry, settings: Settings) -> None:
    await keep_files(registry, settings)
    replaced(settings)
    await keep_files(registry, settings)

    found = [await user(registry, f"{age}-{name}") for age in ("old", "new") for name in ("admin", "agent")]
    assert [each is not None for each in found] == [False, False, True, True]


async def test_a_running_agent_has_time_for_its_next_token(registry: Registry, settings: Settings) -> None:
    await keep_files(registry, settings)
    replaced(settings)
    await keep_files(registry, settings, AGENT_OVERLAP)

    assert await user(registry, "old-admin") is None
    assert await user(registry, "old-agent")
    registry.clock.move(seconds=AGENT_OVERLAP.total_seconds())
    assert await user(registry, "old-agent") is None
    assert await user(registry, "new-agent")


async def test_the_files_of_another_machine_stay_good(registry: Registry, settings: Settings, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "admin.token").write_text("theirs")
    await keep_files(registry, settings)
    await keep_files(registry, settings.model_copy(update={"data_dir": other}))

    assert await user(registry, "old-admin")
    assert await user(registry, "theirs")


async def test_a_revoked_file_does_not_come_back(registry: Registry, settings: Settings) -> None:
    await keep_files(registry, settings)
    assert await registry.store.tokens.revoke_id(digest_of("old-admin")[:12])
    assert await user(registry, "old-admin") is None

    await keep_files(registry, settings)

    assert await user(registry, "old-admin") is None
    path = settings.data_dir / "admin.token"
    assert await user(registry, path.read_text())
    assert path.stat().st_mode & 0o777 == 0o600


async def test_an_agent_that_spoke_for_every_node_is_narrowed(registry: Registry, settings: Settings) -> None:
    every = User(name="system:node:local", groups=("system:nodes",), nodes=("*",))
    for token in ("old-agent", "lost-long-ago"):
        await keep(registry, token, every, Limits())

    await keep_files(registry, settings)

    agent = await user(registry, "old-agent")
    assert agent
    assert agent.nodes == (NODE,)
    assert await user(registry, "lost-long-ago") is None


@pytest.mark.parametrize("content", ["", " \n", None])
async def test_a_file_without_a_token_lets_nobody_in(
    registry: Registry, settings: Settings, content: str | None
) -> None:
    path = settings.data_dir / "admin.token"
    path.unlink() if content is None else path.write_text(content)
    await keep_files(registry, settings)

    assert await registry.store.pool.fetchval("select count(*) from tokens") == 1  # the agent's


def test_a_folder_is_told_from_others_for_good(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    first = folder_id(tmp_path)

    assert folder_id(tmp_path) == first != folder_id(other)
    assert {each.name for each in tmp_path.iterdir()} == {"folder.id", "other"}

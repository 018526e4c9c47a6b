"""An agent that has joined follows its API from one authority to the next, and nobody else."""

from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path

import pytest

from app.agent.agent import Agent
from app.agent.config import AgentConfig
from app.agent.node.join import CaRotation, may_follow
from app.api.app import create_app
from app.api.auth import certificates
from app.client.api import Api, UnreachableError
from app.client.protocol import CA
from app.registry.verbs.objects import Registry
from tests.agent.fake_clock import FakeClock
from tests.agent.fake_runtime import FakeRuntime
from tests.api.servers import listening


@pytest.fixture(scope="module")
def pems(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("authorities")
    return {name: certificates.ensure(folder / name, []).ca.read_text() for name in ("old", "new", "foreign")}


@pytest.mark.parametrize(
    ("kept", "told", "followed"),
    [
        pytest.param("old", "old new", True, id="a rotation begins"),
        pytest.param("old new", "new", True, id="a rotation ends"),
        pytest.param("old", "old", False, id="nothing changed"),
        pytest.param("old", "new", False, id="a rotation that was missed"),
        pytest.param("old", "foreign", False, id="somebody else's"),
        pytest.param("old", "", False, id="none"),
    ],
)
def test_an_authority_is_followed_when(pems: dict[str, str], kept: str, told: str, followed: bool) -> None:
    assert may_follow(*("".join(pems[name] for name in names.split()) for names in (kept, told))) is followed


async def test_an_agent_follows_a_rotation_without_a_restart(registry: Registry, tmp_path: Path) -> None:
    tls, kept = tmp_path / "tls", tmp_path / "ca.crt"
    made = certificates.ensure(tls, ["127.0.0.1"])
    before = made.ca.read_bytes()
    app = create_app(registry, authority=made.ca.read_text)
    files = {"ssl_certfile": str(made.cert), "ssl_keyfile": str(made.key)}
    async with AsyncExitStack() as opened:
        certificates.begin_rotation(tls, now=datetime.now(UTC))
        both = made.ca.read_text()
        certificates.finish_rotation(tls)
        certificates.renew(tls, ["127.0.0.1"], now=datetime.now(UTC))
        port = await opened.enter_async_context(listening(app, **files))
        kept.write_bytes(before)
        api = Api(f"https://127.0.0.1:{port}", ca_file=kept)
        opened.push_async_callback(api.close)
        trust = CaRotation(api, kept, FakeClock())
        with pytest.raises(UnreachableError, match="CERTIFICATE_VERIFY_FAILED"):
            await api.request("GET", CA)

        trust.follow(both)
        assert kept.read_text() == both
        trust.follow((await api.request("GET", CA)).decode())
        assert kept.read_text() == made.ca.read_text() != both


class Stopped(Exception):
    pass


async def test_what_the_api_tells_is_asked_for_as_soon_as_the_agent_starts(registry: Registry, tmp_path: Path) -> None:
    class Once(FakeClock):
        async def sleep(self, seconds: float) -> None:
            raise Stopped

    tls, kept = tmp_path / "tls", tmp_path / "ca.crt"
    made = certificates.ensure(tls, ["127.0.0.1"])
    kept.write_bytes(made.ca.read_bytes())
    certificates.begin_rotation(tls, now=datetime.now(UTC))
    files = {"ssl_certfile": str(made.cert), "ssl_keyfile": str(made.key)}
    async with listening(create_app(registry, authority=made.ca.read_text), **files) as port:
        api = Api(f"https://127.0.0.1:{port}", ca_file=kept)
        with pytest.raises(Stopped):
            await CaRotation(api, kept, Once()).run()
        await api.close()
    assert kept.read_text() == made.ca.read_text()


@pytest.mark.parametrize(
    ("ca_file", "loops"),
    [("state/ca.crt", ["authority"]), ("../{name}/state/ca.crt", ["authority"]), ("other.crt", []), (None, [])],
)
async def test_an_agent_looks_after_the_authority_in_its_own_folder_only(
    tmp_path: Path, ca_file: str | None, loops: list[str]
) -> None:
    state = tmp_path / "state"
    state.mkdir()
    pem = certificates.ensure(tmp_path / "tls", []).ca.read_bytes()
    for path in (state / "ca.crt", tmp_path / "other.crt"):
        path.write_bytes(pem)
    given = tmp_path / ca_file.format(name=tmp_path.name) if ca_file else None
    told = AgentConfig(server="https://127.0.0.1:1", ca_file=given, node_names=("n",), state_dir=state)
    agent = Agent(told, FakeRuntime(FakeClock().now))
    try:
        assert [name for name, _ in agent._ca_rotation()] == loops
    finally:
        await agent._api.close()

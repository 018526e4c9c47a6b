"""What the agent makes of a namespace's level: which pods are isolated, what they may ask for, what they may mount."""

import asyncio
import os
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.agent.pods.environment import ContainerConfigError
from app.agent.pods.isolation import check_privileges, isolation_label, restrict
from app.agent.pods.namespace_levels import NamespaceLevels
from app.agent.volumes.volumes import check_open_host_path
from app.client.api import Api
from app.client.protocol import NamespaceLevel, namespace_path
from app.kinds.pod.container import Container
from app.kinds.pod.pod import Pod, PodSpec
from app.kinds.pod.security import SecurityContext
from app.kinds.pod.volume import HostPathVolumeSource
from app.machinery.base import ObjectMeta
from app.machinery.errors import ApiError
from app.runtimes.base import CreateError, Sandbox, Security
from tests.agent.fake_api import FakeApi
from tests.agent.fake_clock import FakeClock

N = 2_001_000_000
OWN, AGENTS = Sandbox("p", is_isolated=True, user=N), Sandbox("p", is_isolated=True)
PATH = namespace_path("n1", "team")


@pytest.mark.parametrize(
    "wanted", [Security(), Security(user=N, group=N, groups=(N,)), Security(drop=("NET_RAW",))], ids=str
)
def test_a_container_is_its_namespace_s_user(wanted: Security) -> None:
    assert restrict(wanted, OWN, "main") == Security(user=N, group=N, drop=("ALL",), no_new_privileges=True)


def test_a_container_of_a_privileged_namespace_is_what_it_asks_for() -> None:
    wanted = Security(user=0, privileged=True, add=("SYS_ADMIN",))

    assert restrict(wanted, Sandbox("p"), "main") is wanted


@pytest.mark.parametrize(
    ("wanted", "sandbox", "why"),
    [
        (Security(user=0), OWN, f"container main: runAsUser may only be {N}, the user of its namespace"),
        (Security(group=0), OWN, "runAsGroup may only be"),
        (Security(groups=(N, 0)), OWN, "fsGroup, supplementalGroups may only be"),
        (Security(privileged=True), OWN, "need a privileged namespace"),
        (Security(privileged=True), AGENTS, "need a privileged namespace"),
        (Security(add=("CHOWN",)), AGENTS, "need a privileged namespace"),
    ],
    ids=str,
)
def test_a_container_may_not_ask_for_more(wanted: Security, sandbox: Sandbox, why: str) -> None:
    with pytest.raises(ContainerConfigError, match=why):
        restrict(wanted, sandbox, "main")


def test_the_node_has_a_label_only_where_pods_are_processes() -> None:
    assert isolation_label("sandbox") == {"jobplane.dev/pod-isolation": "sandbox"}
    assert isolation_label(None) == {}


# Levels


def levels(api: httpx.AsyncBaseTransport, clock: FakeClock) -> NamespaceLevels:
    return NamespaceLevels(Api("http://api", transport=api), ["n1"], clock)


def asked(api: FakeApi) -> int:
    return api.requests.count(f"GET {PATH}")


async def test_one_answer_serves_all_pods_that_were_known_when_it_was_asked_for() -> None:
    api, clock = FakeApi(), FakeClock()
    api.objects[PATH] = {"uid": "u", "level": "restricted"}
    found = levels(api, clock)
    begun = clock.elapsed()
    clock.advance(1)

    answers = await asyncio.gather(*(found.level_of("team", begun) for _ in range(50)))
    assert answers == [NamespaceLevel("u", "restricted")] * 50
    assert asked(api) == 1


async def test_a_pod_that_was_created_after_a_change_of_the_level_sees_it() -> None:
    api, clock = FakeApi(), FakeClock()
    api.objects[PATH] = {"uid": "u", "level": "privileged"}
    found = levels(api, clock)
    clock.advance(1)
    assert (await found.level_of("team", clock.elapsed() - 1)).level == "privileged"

    api.objects[PATH] = {"uid": "u", "level": "baseline"}
    clock.advance(1)
    assert (await found.level_of("team", clock.elapsed())).level == "baseline"
    assert asked(api) == 2


async def test_a_level_that_came_with_the_pod_needs_no_request_while_it_is_new() -> None:
    api, clock = FakeApi(), FakeClock()
    api.objects[PATH] = {"uid": "u", "level": "restricted"}
    found, told, known = levels(api, clock), NamespaceLevel("u", "privileged"), clock.elapsed()
    clock.advance(4)
    assert await found.level_of("team", known, told) == told
    assert asked(api) == 0

    clock.advance(1)
    assert (await found.level_of("team", known, told)).level == "restricted"


async def test_a_level_that_came_with_one_pod_is_no_other_pod_s() -> None:
    api, clock = FakeApi(), FakeClock()
    api.objects[PATH] = {"uid": "u", "level": "restricted"}
    found = levels(api, clock)
    await found.level_of("team", clock.elapsed(), NamespaceLevel("u", "privileged"))

    assert (await found.level_of("team", clock.elapsed())).level == "restricted"


async def test_where_there_was_no_namespace_with_the_pod_it_is_asked_for() -> None:
    api, clock = FakeApi(), FakeClock()
    api.objects[PATH] = {"uid": "u", "level": "restricted"}

    assert (await levels(api, clock).level_of("team", clock.elapsed(), NamespaceLevel())).uid == "u"


async def test_an_api_that_is_older_names_no_levels() -> None:
    api = FakeApi()

    assert await levels(api, FakeClock()).level_of("team", 0) == NamespaceLevel("", "privileged")


@pytest.mark.parametrize("code", [401, 403, 500, 503])
async def test_an_api_that_does_not_answer_is_no_leave_to_run_it_as_the_agent(code: int) -> None:
    api = FakeApi()
    api.refusals["/namespaces/team"] = code

    with pytest.raises((ApiError, ConnectionError)):
        await levels(api, FakeClock()).level_of("team", 0)


async def test_a_namespace_that_is_gone_starts_no_pod() -> None:
    api = FakeApi()
    api.objects[PATH] = {"uid": "", "level": "restricted"}

    with pytest.raises(ContainerConfigError, match="namespace team does not exist"):
        await levels(api, FakeClock()).level_of("team", 0)


# Engines


def a_pod(**context: Any) -> Pod:
    container = Container(name="main", image="x", security_context=SecurityContext(**context))
    return Pod(metadata=ObjectMeta(name="p", namespace="team"), spec=PodSpec(containers=(container,)))


def test_an_engine_gives_no_more_than_baseline_where_nobody_has_said_what_the_namespace_may() -> None:
    by_default = NamespaceLevel("u", "privileged", is_default=True)
    with pytest.raises(CreateError) as found:
        check_privileges(a_pod(privileged=True), by_default)

    assert 'violates PodSecurity "baseline:latest": privileged (container "main"' in str(found.value)
    assert "kubectl label namespace team pod-security.kubernetes.io/enforce=privileged" in str(found.value)
    check_privileges(a_pod(run_as_user=0), by_default)


@pytest.mark.parametrize("level", [NamespaceLevel("u", "privileged"), NamespaceLevel("u", "baseline")], ids=str)
def test_where_somebody_has_said_it_admission_has_decided(level: NamespaceLevel) -> None:
    check_privileges(a_pod(privileged=True), level)


# hostPath


def mounted(path: object, kind: str = "", owner: Sandbox = OWN, private: tuple[Path, ...] = ()) -> Path:
    return check_open_host_path(HostPathVolumeSource(path=str(path), type=kind), owner, private)


def test_what_any_user_can_reach_may_be_mounted() -> None:
    assert mounted("/usr/share") == Path("/usr/share")
    assert mounted("/usr/share", "Directory") == Path("/usr/share")
    assert mounted("/etc/passwd", "File") == Path("/etc/passwd")
    assert mounted("/bin/sh") == Path("/bin/sh").resolve()


@pytest.mark.parametrize(
    "path", ["/", "/proc", "/proc/self", "/sys/fs", "/dev/shm", "/tmp", "/var", "/private", "/private/x"]
)
def test_what_a_pod_has_of_its_own_or_is_the_agent_s_may_not_be_mounted(path: str, tmp_path: Path) -> None:
    agent = tmp_path / "agent"
    (agent / "x").mkdir(parents=True)
    wanted = path.replace("/private", str(agent))

    with pytest.raises(ContainerConfigError, match="needs a privileged namespace"):
        mounted(wanted, private=(agent,))


def test_a_link_that_leads_to_the_agent_may_not_be_mounted(tmp_path: Path) -> None:
    (tmp_path / "agent").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "agent")

    with pytest.raises(ContainerConfigError):
        mounted(tmp_path / "link", private=(tmp_path / "agent",))


def test_what_others_could_make_lead_elsewhere_may_not_be_mounted(tmp_path: Path) -> None:
    with pytest.raises(ContainerConfigError):
        mounted(tmp_path)  # below /tmp, where anybody writes


def test_nothing_is_made_for_an_isolated_pod() -> None:
    for kind in ("", "DirectoryOrCreate", "FileOrCreate"):
        with pytest.raises(ContainerConfigError, match="does not exist"):
            mounted("/usr/share/no-such-thing", kind)
    assert not os.path.exists("/usr/share/no-such-thing")


def test_the_agent_s_own_user_may_mount_nothing_of_the_node() -> None:
    with pytest.raises(ContainerConfigError):
        mounted("/usr/share", owner=AGENTS)


def test_the_type_is_checked(tmp_path: Any) -> None:
    with pytest.raises(ContainerConfigError, match="is not a file"):
        mounted("/usr/share", "FileOrCreate")

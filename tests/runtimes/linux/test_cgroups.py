"""Cgroups: where they are made on which machine, what is written into them, and what comes of it where the kernel plays."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.runtimes.base import ResourceLimits
from app.runtimes.linux import cgroup_roots
from app.runtimes.linux import cgroups as cgroup
from app.runtimes.linux.cgroup_roots import Kernel, find
from app.runtimes.linux.cgroups import Cgroups
from app.runtimes.process.runtime import ProcessRuntime
from tests.log_lines import lines
from tests.runtimes.conftest import FOREVER, LEAVES_ITS_SESSION, Lab, a_key, raw, script

MIB = 1 << 20
PID = 4711
ALL = ResourceLimits(cpu=1500, memory=64 * MIB, cpu_request=500)
KEY = a_key()


class FakeHost:
    """Folders that look like a machine's hierarchies; nothing in them acts by itself."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self.mounts: list[str] = []
        self.own: list[str] = []

    def unified(self, own: str, controllers: str = "cpu memory pids", members: str = "1\n") -> Path:
        here = self.top / "unified" / own.lstrip("/")
        here.mkdir(parents=True)
        for folder in (here, here.parent, self.top / "unified"):
            (folder / "cgroup.controllers").write_text(controllers)
        (here / "cgroup.procs").write_text(members)
        self.mounts.append(f"30 20 0:26 / {self.top}/unified rw - cgroup2 cgroup2 rw")
        self.own.append(f"0::{own}")
        return here

    def separate(self, controller: str, own: str = "/", root: str = "/") -> Path:
        folder = self.top / controller
        folder.mkdir()
        self.mounts.append(f"31 20 0:27 {root} {folder} rw,nosuid shared:9 - cgroup cgroup rw,{controller}")
        self.own.append(f"{len(self.own)}:{controller}:{own}")
        return folder

    def find(self, asked: str = "auto", pids: int = 0) -> cgroup_roots.FoundCgroups:
        kernel = Kernel(mounts="\n".join(self.mounts), own="\n".join(self.own), pid=PID)
        return find(self.top / "state", asked, pids, kernel)


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    return FakeHost(tmp_path)


def made(cgroups: Cgroups, limits: ResourceLimits) -> dict[str, str]:
    """What is in the files of a container's cgroups."""
    folders = cgroups.make(KEY, limits)
    return {file.name: file.read_text() for folder in folders for file in folder.iterdir()}


def test_of_version_2_they_are_made_beside_the_agent(host: FakeHost) -> None:
    here = host.unified("/system.slice/agent.service/agent")
    found = host.find()

    assert found.why == ""
    assert found.cgroups
    assert found.cgroups.limits
    assert {folder.parent for folder in found.cgroups.folders.values()} == {here.parent}
    assert (here.parent / "cgroup.subtree_control").read_text().startswith("+")


def test_of_version_2_they_are_made_at_the_top_if_the_agent_is_there(host: FakeHost) -> None:
    host.unified("/")
    found = host.find()

    assert found.cgroups
    assert {folder.parent for folder in found.cgroups.folders.values()} == {host.top / "unified"}


def test_an_agent_alone_in_its_cgroup_makes_room(host: FakeHost) -> None:
    here = host.unified("/mine/it", members=f"{PID}\n")
    (here.parent / "cgroup.subtree_control").mkdir()  # nobody may write that
    found = host.find()

    assert found.cgroups
    assert {folder.parent for folder in found.cgroups.folders.values()} == {here}
    assert (here / "agent/cgroup.procs").read_text() == str(PID)


def test_an_agent_with_company_in_a_scope_of_its_user_has_them_in_that_user_s_slice(host: FakeHost) -> None:
    """As `systemd-run --user --scope -p Delegate=yes jobplane up` makes it: API and Postgres are in the scope, too."""
    here = host.unified("/user.slice/user@1000.service/app.slice/run-1.scope", members=f"{PID}\n1\n2\n")
    found = host.find()

    assert found.why == ""
    assert found.cgroups
    assert {folder.parent for folder in found.cgroups.folders.values()} == {here.parent}
    assert not (here / "agent").exists()


def test_an_agent_with_company_stays_and_says_why(host: FakeHost) -> None:
    here = host.unified("/mine/it", members=f"{PID}\n1\n")
    (here.parent / "cgroup.subtree_control").mkdir()
    found = host.find()

    assert found.cgroups is None
    assert "cgroup.subtree_control: Is a directory" in found.why
    assert not (here / "agent").exists()


def test_of_version_1_they_are_made_in_each_hierarchy_below_the_agent(host: FakeHost) -> None:
    host.unified("/", controllers="hugetlb")
    for controller in ("memory", "cpu", "pids"):
        folder = host.separate(controller, own="/outer/inner", root="/outer")
        (folder / "inner").mkdir()
    cgroups = host.find().cgroups

    assert cgroups
    assert (cgroups.limits, cgroups.is_unified) == (True, False)
    assert {folder.parent for folder in cgroups.folders.values()} == {
        host.top / name / "inner" for name in ("memory", "cpu", "pids")
    }


def test_without_a_hierarchy_for_memory_they_kill_but_keep_no_limits(host: FakeHost) -> None:
    host.separate("pids")
    (host.top / "memory").write_text("")
    host.mounts.append(f"31 20 0:27 / {host.top}/memory rw - cgroup cgroup rw,memory")
    host.own.append("7:memory:/")
    found = host.find()

    assert found.cgroups
    assert not found.cgroups.limits
    assert "memory" in found.why


@pytest.mark.parametrize(
    ("asked", "why"),
    [("none", "they are turned off"), ("auto", "no cgroup hierarchy that may be written")],
    ids=["turned off", "nothing is there"],
)
def test_there_are_none_if(host: FakeHost, asked: str, why: str, caplog: pytest.LogCaptureFixture) -> None:
    found = host.find(asked)

    assert found == (None, why)
    assert cgroup_roots.log_missing(found) is None
    logged = "\n".join(lines(caplog))
    assert ("Delegate=yes" in logged) == (why in logged) == (asked == "auto")


def test_a_folder_of_one_s_choice_is_used(host: FakeHost, tmp_path: Path) -> None:
    (tmp_path / "chosen").mkdir()
    found = host.find(str(tmp_path / "chosen"))

    assert found.cgroups
    assert {folder.parent for folder in found.cgroups.folders.values()} == {tmp_path / "chosen"}


@pytest.mark.parametrize(
    ("limits", "pids", "expected"),
    [
        pytest.param(
            ALL,
            100,
            {
                "memory.max": "67108864",
                "memory.swap.max": "0",
                "memory.oom.group": "1",
                "cpu.max": "150000 100000",
                "cpu.weight": "20",
                "pids.max": "100",
            },
            id="all there are",
        ),
        pytest.param(ResourceLimits(cpu=1), 0, {"cpu.max": "1000 100000"}, id="less CPU than can be had"),
        pytest.param(ResourceLimits(), 0, {}, id="none"),
    ],
)
def test_limits_of_version_2(host: FakeHost, limits: ResourceLimits, pids: int, expected: dict[str, str]) -> None:
    host.unified("/")
    cgroups = host.find(pids=pids).cgroups
    assert cgroups

    assert made(cgroups, limits) == expected


def test_limits_of_version_1_and_that_only_what_is_needed_is_made(host: FakeHost) -> None:
    for controller in ("memory", "cpu", "pids"):
        host.separate(controller)
    cgroups = host.find().cgroups
    assert cgroups

    assert made(cgroups, ALL) == {
        "memory.limit_in_bytes": "67108864",
        "memory.memsw.limit_in_bytes": "67108864",
        "cpu.cfs_period_us": "100000",
        "cpu.cfs_quota_us": "150000",
        "cpu.shares": "512",
    }
    assert [folder.parent.parent.name for folder in cgroups.make(a_key("pod-2"), ResourceLimits())] == ["pids"]


def test_what_pods_that_are_gone_have_left_is_swept(host: FakeHost) -> None:
    for controller in ("memory", "cpu", "pids"):
        host.separate(controller)
    cgroups = host.find().cgroups
    assert cgroups
    kept, left = cgroups.make(a_key("pod-1"), ResourceLimits()), cgroups.make(a_key("pod-2"), ResourceLimits())
    cgroups.sweep(["pod-1"])

    assert (kept[0].exists(), left[0].exists()) == (True, False)


def test_version_2_kills_with_one_word(tmp_path: Path) -> None:
    (tmp_path / "cgroup.kill").write_text("")
    cgroup.kill_all([tmp_path])

    assert (tmp_path / "cgroup.kill").read_text() == "1"


# Where the kernel plays


@pytest.fixture
async def limited(tmp_path: Path) -> AsyncIterator[Lab]:
    found = find(tmp_path / "state", pids=20)
    if found.why or found.cgroups is None:
        pytest.skip(f"this machine keeps no limits: {found.why}")
    cgroups = found.cgroups
    lab = Lab(lambda: ProcessRuntime(tmp_path / "state", cgroups=cgroups))
    yield lab
    await lab.close()
    assert not [folder for folder in cgroups.folders.values() if folder.exists()]


async def test_who_was_killed_for_memory_is_known_to_a_later_agent(limited: Lab) -> None:
    status = await limited.run(script("tail /dev/zero; exit 0"), limits=ResourceLimits(memory=32 * MIB))
    await limited.restart()

    assert (status.exit_code, status.reason) == (0, "OOMKilled")
    assert await limited.runtime.status(status.key) == status


async def test_a_container_that_forks_wildly_reaches_its_bound(limited: Lab) -> None:
    text = "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23; do sleep 100 & done; echo all"
    status = await limited.run(script(text))

    assert status.exit_code
    assert b"all" not in raw(await limited.log(status.key))


async def test_a_container_without_limits_is_as_before(limited: Lab) -> None:
    assert (await limited.run(script("exit 3"))).exit_code == 3


async def test_a_later_agent_kills_what_has_left_its_session(limited: Lab) -> None:
    key = await limited.start(script(f"{LEAVES_ITS_SESSION} echo ready; sleep 1000"), limits=ALL)
    await limited.logged(key, b"ready")
    await limited.restart()

    assert (await limited.stop(key, 0)).exit_code == 137


async def test_without_cgroups_a_pod_with_limits_still_runs(process: Lab) -> None:
    assert not (await process.runtime.info()).limits
    assert (await process.run(script("exit 3"), limits=ALL)).exit_code == 3


async def test_an_agent_that_closes_leaves_what_runs_its_cgroup(limited: Lab) -> None:
    key = await limited.start(FOREVER, limits=ALL)
    await limited.logged(key, b"ready")
    await limited.restart()

    assert [used.key for used in await limited.runtime.usage()] == [key]

"""Isolated pods of the process runtime: as root with and without bubblewrap, and as an ordinary user with it."""

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from app.runtimes.base import CreateError, Mount, SandboxSpec, Security, StartError
from app.runtimes.linux import process_table
from app.runtimes.process import environment, isolation
from app.runtimes.process.isolation import SandboxRecord
from app.runtimes.process.pod_users import DEFAULT_RANGE, parse_range
from app.runtimes.process.runtime import ProcessRuntime
from app.runtimes.process.security_context import CAPABILITIES, AgentRights
from tests.runtimes.conftest import FOREVER, PATIENCE, Lab, a_key, output_of, raw, script

ROOT = os.geteuid() == 0
BUBBLEWRAP = shutil.which("bwrap") or ""
USERS = parse_range(DEFAULT_RANGE)
as_root = pytest.mark.skipif(not ROOT, reason="only root can run pods as users of their own")
needs_bubblewrap = pytest.mark.skipif(not BUBBLEWRAP, reason="bubblewrap is not installed")
PLAIN = AgentRights(user=1000, group=1000, capabilities=frozenset(), setpriv="setpriv")
ABLE = AgentRights(user=0, group=0, capabilities=frozenset(CAPABILITIES), setpriv="setpriv")


@pytest.fixture
def place() -> Iterator[Path]:
    """Where other users may walk, as to /var/lib, and which no container's own /tmp hides."""
    path = Path(tempfile.mkdtemp(prefix="jobplane-test-", dir="/var/lib" if ROOT else None))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture(params=[pytest.param(True, marks=needs_bubblewrap, id="bubblewrap"), pytest.param(False, id="bare")])
async def lab(request: pytest.FixtureRequest, place: Path) -> AsyncIterator[Lab]:
    program = BUBBLEWRAP if request.param else ""
    if not ROOT and not program:
        pytest.skip("an ordinary user needs bubblewrap")
    lab = Lab(lambda: ProcessRuntime(place / "state", bubblewrap=program))
    yield lab
    await lab.close()


async def printed(lab: Lab, text: str, pod: str = "pod-1", namespace: str = "ns-1", **more: Any) -> str:
    key = await lab.start(script(text), a_key(pod), pod={"namespace_uid": namespace}, **more)
    await lab.ended(key)
    return raw(await lab.log(key)).decode()


# How far it goes


@pytest.mark.parametrize(
    ("agent", "bubblewrap", "expected"),
    [
        (ABLE, "bwrap", "user-and-sandbox"),
        (ABLE, "", "user"),
        (PLAIN, "bwrap", "sandbox"),
        (PLAIN, "", "none"),
        (AgentRights(user=0, group=0, capabilities=frozenset(), setpriv="setpriv"), "bwrap", "none"),
        (AgentRights(user=0, group=0, capabilities=ABLE.capabilities, setpriv=""), "bwrap", "none"),
    ],
)
def test_isolation_depends_on_the_agent(agent: AgentRights, bubblewrap: str, expected: str) -> None:
    assert isolation.how(agent, USERS, bubblewrap) == expected
    assert bool(isolation.find_obstacle(agent, USERS, bubblewrap)) == (expected == "none")


async def test_a_pod_that_cannot_be_isolated_is_refused_in_words(tmp_path: Path) -> None:
    runtime = ProcessRuntime(tmp_path / "state", bubblewrap="")
    runtime._agent = PLAIN
    try:
        with pytest.raises(CreateError, match=r"not root, and bubblewrap is not usable.*label the namespace"):
            await runtime.run_sandbox(SandboxSpec(pod_uid="p", namespace="n", name="p", namespace_uid="ns"))
        assert list(await runtime.sandboxes()) == []
    finally:
        await runtime.close()


# As whom


@as_root
async def test_containers_are_their_namespace_s_user_without_any_rights(lab: Lab) -> None:
    status = await printed(lab, "cat /proc/self/status")
    fields = dict(line.split(":", 1) for line in status.splitlines())
    user = (await lab.sandbox("pod-1")).user

    assert user in USERS
    assert set(fields["Uid"].split()) == set(fields["Gid"].split()) == {str(user)}
    assert fields["Groups"].split() in ([], [str(user)])
    assert {int(fields[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {0}
    assert fields["NoNewPrivs"].split() == ["1"]


@as_root
async def test_another_namespace_has_another_user_and_a_restarted_agent_the_same(lab: Lab) -> None:
    first = (await printed(lab, "id -u")).strip()
    other = (await printed(lab, "id -u", "pod-2", "ns-2")).strip()
    await lab.restart()
    again = (await printed(lab, "id -u", "pod-3")).strip()

    assert first == again != other
    assert {each.pod_uid: str(each.user) for each in await lab.runtime.sandboxes()} == {
        "pod-1": first,
        "pod-2": other,
        "pod-3": first,
    }


@as_root
@pytest.mark.parametrize(
    "security",
    [
        Security(user=0),
        Security(user=1000),
        Security(group=0),
        Security(groups=[0]),
        Security(privileged=True),
        Security(add=["CHOWN"]),
    ],
    ids=str,
)
async def test_the_runtime_itself_gives_no_other_rights(lab: Lab, security: Security) -> None:
    with pytest.raises(StartError, match="namespace"):
        await printed(lab, "id", security=security)


async def test_a_sandbox_that_is_gone_is_not_made_again_without_its_namespace(lab: Lab) -> None:
    with pytest.raises(CreateError, match="gone"):
        await lab.sandbox("pod-9", namespace_uid=None)


async def test_the_record_of_a_pod_is_there_before_its_folder(lab: Lab, place: Path) -> None:
    """A killed agent leaves at most what the next one removes: never a pod that would seem to be privileged."""
    unfinished = place / "state" / f"{isolation.UNFINISHED}pod-1"
    unfinished.mkdir()
    (unfinished / isolation.RECORD).write_text("{")
    await lab.restart()

    assert not unfinished.exists()
    assert (await lab.sandbox("pod-1", namespace_uid="ns-1")).is_isolated


async def test_a_pod_whose_record_is_unreadable_starts_nothing(lab: Lab, place: Path) -> None:
    await lab.sandbox("pod-1", namespace_uid="ns-1")
    (place / "state" / "pod-1" / isolation.RECORD).write_text("")
    await lab.restart()

    with pytest.raises(StartError, match="unreadable: delete the pod"):
        await printed(lab, "id")


async def test_a_privileged_pod_stays_one_whatever_becomes_of_its_namespace(lab: Lab) -> None:
    await lab.sandbox("pod-1")

    assert not (await lab.sandbox("pod-1", namespace_uid="ns-1")).is_isolated


# What it reaches


@as_root
async def test_pods_of_another_namespace_are_out_of_reach(lab: Lab, place: Path) -> None:
    """By their own user at least; what the node's user root can, shows that the attempts are good."""
    theirs = await lab.start(
        script("echo hidden > ~/secret; echo ready; exec sleep 1000"), a_key("pod-2"), pod={"namespace_uid": "ns-2"}
    )
    await lab.logged(theirs, b"ready")
    container = lab.runtime._pods["pod-2"][theirs]  # type: ignore[attr-defined]
    pid = await container.target(await container.main())
    folder = place / "state" / "pod-2"
    homes = [each for each in folder.iterdir() if each.name.startswith(".home") and (each / "secret").exists()]
    attempts = [
        f"cat {homes[0]}/secret",
        f"cat {folder}/main.0/out",
        f"ls {folder}",
        f"ls {place}/state/pod-2/main.0",
        f"cat {place}/state/.users",
        f"cat /proc/{pid}/environ",
        f"ls /proc/{pid}/cwd/",
        f"kill -0 {pid}",
        f"kill -0 {os.getpid()}",
        f"cat /proc/{os.getpid()}/environ",
    ]
    text = "\n".join(f"{{ {each}; }} > /dev/null 2>&1; echo $?" for each in attempts)
    control = await lab.start(script(text), a_key("pod-3"))
    await lab.ended(control)

    assert raw(await lab.log(control)).split() == [b"0"] * len(attempts)
    assert "0" not in (await printed(lab, text)).split()


@as_root  # another user has no place here that no own /tmp hides
@needs_bubblewrap
async def test_processes_ipc_and_temporary_files_are_the_pod_s_own(place: Path) -> None:
    lab = Lab(lambda: ProcessRuntime(place / "state", private=[place]))
    (place / "token").write_text("hidden")
    try:
        text = (
            f"cat {place}/token; echo mine > /tmp/x; ls /dev/shm; ls -d /proc/[0-9]* | wc -l; cat /tmp/x; ls /var/tmp"
        )
        first = await printed(lab, text)
        second = await printed(lab, f"ls {place} /tmp; readlink /proc/self/ns/ipc", "pod-2")
        again = await lab.start(script("cat /tmp/x"), a_key(attempt=1))
        await lab.ended(again)
    finally:
        await lab.close()

    assert "hidden" not in first
    assert int(first.split()[0]) < 10
    assert first.split()[1:] == ["mine", "x"]
    assert second.split()[:2] == ["/tmp:", f"{place}:"]
    assert second.split()[2] != os.readlink("/proc/self/ns/ipc")
    assert not Path("/tmp/x").exists()


@needs_bubblewrap
async def test_a_process_that_leaves_its_session_ends_with_its_container(place: Path) -> None:
    lab = Lab(lambda: ProcessRuntime(place / "state"))
    try:
        mark = f"sleep 1{os.getpid()}"
        key = await lab.start(script(f"setsid {mark} & sleep 0.1; echo ready; wait"), pod={"namespace_uid": "ns-1"})
        await lab.logged(key, b"ready")
        assert named(mark)
        await lab.stop(key, 0)
        async with asyncio.timeout(PATIENCE):
            while named(mark):  # noqa: ASYNC110 - not our child: nothing tells of its end
                await asyncio.sleep(0.01)
    finally:
        await lab.close()


def named(command: str) -> list[int]:
    found = []
    for pid in process_table.pids():
        try:
            if Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").strip() == command.encode():
                found.append(pid)
        except OSError:
            continue
    return found


# Commands in it


async def test_a_command_has_no_more_rights_than_the_container_however_early_it_comes(lab: Lab) -> None:
    """Between its start and its user's program, a container's process still has the agent's rights."""
    for attempt in range(5):
        key = await lab.start(FOREVER, a_key(attempt=attempt), pod={"namespace_uid": "ns-1"})
        session = await lab.runtime.execute(key, ["sh", "-c", "id -u; grep -E 'CapEff|NoNewPrivs' /proc/self/status"])
        words = (await output_of(session))["stdout"].decode().split()
        await session.close()
        await lab.stop(key, 0)

        assert words[0] == str((await lab.sandbox("pod-1")).user if ROOT else os.geteuid())
        assert words[1:] == ["CapEff:", "0" * 16, "NoNewPrivs:", "1"]


async def test_a_command_gets_names_that_no_shell_can_spell(lab: Lab) -> None:
    key = await lab.start(FOREVER, pod={"namespace_uid": "ns-1"}, env={"my.name": "ä"})
    await lab.logged(key, b"ready")
    session = await lab.runtime.execute(key, ["env"])

    assert "my.name=ä" in (await output_of(session))["stdout"].decode()


@pytest.mark.parametrize("namespace", [pytest.param("ns-1", id="isolated"), pytest.param("", id="privileged")])
async def test_no_program_of_the_agent_loads_what_the_pod_says(lab: Lab, place: Path, namespace: str) -> None:
    """LD_DEBUG has each program write what it loads, and its name, into a file of its own; LD_PRELOAD would give it code."""
    told = place / "told"
    told.mkdir()
    told.chmod(0o777)
    env = {"LD_DEBUG": "libs", "LD_DEBUG_OUTPUT": str(told / "of"), "PS4": "+"}
    key = a_key("pod-1")
    await lab.start(script("exec cat /proc/self/environ"), key, env=env, pod={"namespace_uid": namespace})
    await lab.ended(key)
    variables = raw(await lab.log(key)).decode().split("\0")
    programs = set(re.findall(r"initialize program: (\S+)", "".join(each.read_text() for each in told.iterdir())))

    assert {f"{name}={value}" for name, value in env.items()} <= set(variables)
    assert not [each for each in variables if each.startswith("JOBPLANE_HELD")]
    assert programs == {"sh", "cat"}


async def test_a_further_command_has_the_variables_too_and_its_helpers_do_not(lab: Lab, place: Path) -> None:
    told = place / "told"
    told.mkdir()
    told.chmod(0o777)
    env = {"LD_DEBUG": "libs", "LD_DEBUG_OUTPUT": str(told / "of")}
    key = await lab.start(FOREVER, a_key("pod-1"), env=env, pod={"namespace_uid": "ns-1"})
    session = await lab.runtime.execute(key, ["env"])
    said = (await output_of(session))["stdout"].decode()
    await session.close()
    programs = set(re.findall(r"initialize program: (\S+)", "".join(each.read_text() for each in told.iterdir())))

    assert "LD_DEBUG=libs" in said.splitlines()
    assert programs & {"nsenter", "setpriv", "bwrap", "/bin/sh"} == set()


def test_a_command_in_a_container_of_an_older_agent_loads_nothing_either() -> None:
    env = environment.hold({"LD_PRELOAD": "/x.so", "A": "b"})

    assert environment.without_loading({**env, "LD_AUDIT": "/old.so"}) == env
    assert environment.with_held(["env"], env) == [
        "/usr/bin/env",
        "-u",
        "JOBPLANE_HELD_ENVIRONMENT",
        "LD_PRELOAD=/x.so",
        "env",
    ]


@as_root
@needs_bubblewrap
@pytest.mark.parametrize(
    "target",
    [
        "/usr/bin",
        "/bin",
        "/usr",
        "/etc",
        "/usr/lib/x86_64-linux-gnu",
        "/lib64/x",
        "/etc/ld.so.preload",
        "/usr/bin/setpriv",
    ],
)
async def test_nothing_is_mounted_over_what_programs_are_loaded_from(place: Path, target: str) -> None:
    """setpriv runs with the agent's rights, in the container's view: a pod must not supply it, nor a library of it."""
    lab = Lab(lambda: ProcessRuntime(place / "state", bubblewrap=BUBBLEWRAP))
    mount = Mount(source=place, target=target)
    try:
        with pytest.raises(StartError, match="programs come from"):
            await lab.start(script("true"), a_key("pod-1"), mounts=[mount], pod={"namespace_uid": "ns-1"})
    finally:
        await lab.close()


async def test_temporary_files_have_a_place_of_the_pod_s_own(lab: Lab) -> None:
    await printed(lab, 'echo x > "${TMPDIR:-/tmp}/mine"')

    assert await printed(lab, 'ls "${TMPDIR:-/tmp}"', "pod-2", "ns-2") == ""


async def test_sigterm_reaches_the_command(lab: Lab) -> None:
    key = await lab.start(FOREVER, pod={"namespace_uid": "ns-1"})
    await lab.logged(key, b"ready")

    assert (await lab.stop(key, 30)).exit_code == 128 + signal.SIGTERM


# As an ordinary user

AGENT = """
import asyncio, json, os, sys
from pathlib import Path
from app.runtimes.base import *
from app.runtimes.process.runtime import ProcessRuntime

async def main():
    place, script = Path(sys.argv[1]), sys.argv[2]
    runtime = ProcessRuntime(place / "data" / "state", private=[place / "data", Path.home()])
    codes = {}
    for pod, namespace in (("privileged", ""), ("isolated", "ns-1")):
        await runtime.run_sandbox(SandboxSpec(pod_uid=pod, namespace="n", name=pod, namespace_uid=namespace))
        key, events = ContainerKey(pod, "main", 0), runtime.events()
        env = {"AGENT": str(os.getpid()), "D": str(place / "data"), "MINE": str(place / "mine"), "H": str(Path.home())}
        await runtime.start_container(ContainerSpec(key=key, image="i", command=["sh", "-c", script], env=env))
        while (await runtime.status(key)).state != "exited":
            await anext(events)
        records = (await runtime.read_log(key, 0, 65536)).data.decode().splitlines()
        codes[pod] = [each.split(" ", 3)[3] for each in records]
        await runtime.remove_sandbox(pod)
    print(json.dumps({"isolation": (await runtime.info()).isolation, **codes}))
    await runtime.close()

asyncio.run(main())
"""
ATTEMPTS = [
    "cat $D/token",
    "ls $D/state",
    "cat $H/.ssh/id",
    "echo evil >> $H/.profile && grep evil $H/.profile && test -e $H/.ssh",
    "cat /proc/$AGENT/environ",
    "kill -0 $AGENT",
    "echo x > $MINE/x",
    "unshare -Urm sh -c 'umount $D; cat $D/token'",
    "cat /tmp/$AGENT",
]


def _python() -> str:
    """An interpreter like this one that any user may run."""
    found = shutil.which(f"python3.{sys.version_info.minor}", path="/usr/bin:/usr/local/bin")
    return os.path.realpath(found) if found else ""


@as_root
@needs_bubblewrap
@pytest.mark.skipif(not _python(), reason="no Python here that any user may run")
def test_as_an_ordinary_user_bubblewrap_hides_what_is_the_agent_s(place: Path) -> None:
    home = place / "home"
    for folder in (home / ".ssh", place / "data", place / "mine"):
        folder.mkdir(parents=True)
    for secret in (home / ".ssh" / "id", place / "data" / "token"):
        secret.write_text("hidden")
    subprocess.run(["chown", "-R", "12345:12345", place], check=True)
    text = "\n".join(f"{{ {each}; }} > /dev/null 2>&1; echo $?" for each in ATTEMPTS)
    packages = os.pathsep.join([str(Path.cwd()), str(Path(pytest.__file__).parent.parent)])
    code = f"import os; open(f'/tmp/{{os.getpid()}}', 'w').close()\n{AGENT}\nos.unlink(f'/tmp/{{os.getpid()}}')"
    try:
        tried = subprocess.run(
            [_python(), "-c", code, place, text],
            user=12345,
            group=12345,
            extra_groups=[],
            env={"PYTHONPATH": packages, "HOME": str(home), "PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
        )
    except PermissionError:
        pytest.skip("other users cannot reach these files")
    if "ModuleNotFoundError" in tried.stderr:
        pytest.skip("other users cannot reach these files")
    found = json.loads(tried.stdout)

    assert found["isolation"] == "sandbox"
    assert found["privileged"] == ["0"] * len(ATTEMPTS)
    assert "0" not in found["isolated"]
    assert len(found["isolated"]) == len(ATTEMPTS)


# Mounts


@as_root
@needs_bubblewrap
async def test_volumes_at_and_below_its_own_folders_are_reached(place: Path) -> None:
    lab = Lab(lambda: ProcessRuntime(place / "state", private=[place]))
    volume = place / "volume"
    volume.mkdir()
    volume.chmod(0o777)
    targets = ["/tmp", f"{place}/deep/down", "/no/such/folder", "/dev/shm/x"]
    try:
        mounts = [Mount(source=volume, target=each) for each in targets]
        text = "; ".join(f"echo x > {each}/{number}" for number, each in enumerate(targets))
        await printed(lab, text, mounts=mounts)
    finally:
        await lab.close()

    assert sorted(each.name for each in volume.iterdir()) == ["0", "1", "2", "3"]


@as_root
@needs_bubblewrap
@pytest.mark.parametrize("inner", ["/data/in", "/data/deep/in"])
async def test_nothing_is_mounted_within_what_the_pod_can_write_to(place: Path, inner: str) -> None:
    """bubblewrap, which is root, would follow a link there, and make the mount point in the machine's own files."""
    lab = Lab(lambda: ProcessRuntime(place / "state"))
    (volume := place / "volume").mkdir()
    (volume / "deep").symlink_to(f"/oldroot{place}")
    try:
        mounts = [Mount(source=volume, target="/data"), Mount(source=volume, target=inner, read_only=True)]
        with pytest.raises(StartError, match="mount it elsewhere"):
            await printed(lab, "id", mounts=mounts)
    finally:
        await lab.close()
    assert not (place / "in").exists()


@as_root
@needs_bubblewrap
@pytest.mark.parametrize(
    ("target", "fine"), [("open/in", False), ("open/new", True), ("open/in/new", False), ("own", True)]
)
async def test_a_mount_point_is_not_where_others_could_put_a_link(place: Path, target: str, fine: bool) -> None:
    lab = Lab(lambda: ProcessRuntime(place / "state"))
    for folder in ("volume", "own", "open", "open/in"):
        (place / folder).mkdir()
    (place / "open").chmod(0o1777)
    try:
        mounts = [Mount(source=place / "volume", target=str(place / target))]
        if fine:
            assert await printed(lab, f"ls -d {place / target}", mounts=mounts) == f"{place / target}\n"
        else:
            with pytest.raises(StartError, match="mount it elsewhere"):
                await printed(lab, "id", mounts=mounts)
    finally:
        await lab.close()


@needs_bubblewrap
async def test_what_is_mounted_in_tmp_meets_no_link_of_the_pod_s(place: Path) -> None:
    lab = Lab(lambda: ProcessRuntime(place / "state"))
    (volume := place / "volume").mkdir()
    try:
        await printed(lab, f"ln -s /oldroot{place} /tmp/deep; ls -l /tmp")
        key = a_key(attempt=1)
        mounts = [Mount(source=volume, target="/tmp/deep/in")]
        await lab.start(script("ls -ld /tmp/deep/in"), key, mounts=mounts)
        status = await lab.ended(key)
    finally:
        await lab.close()
    assert status.exit_code == 0
    assert not (place / "in").exists()


def test_folders_that_programs_need_are_never_hidden(tmp_path: Path) -> None:
    record = SandboxRecord("ns", 2_001_000_000)
    view = isolation.view(tmp_path, record, [Path("/"), Path("/usr/sbin"), tmp_path, tmp_path / "inner"])

    assert list(view.hidden) == [tmp_path.resolve()]

"""What the oci runtime promises besides the conformance suite: what pods share, what is refused, kills of all that watches."""

import asyncio
import os
import signal
import tempfile
from contextlib import suppress
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest

from app.runtimes.base import ContainerKey, Dns, Security, StartError
from app.runtimes.linux import cgroups as cgroup
from app.runtimes.linux import process_table
from app.runtimes.oci import container as oci_container
from app.runtimes.oci.sandboxes import NODE_SHM
from app.runtimes.process.files import Folder
from tests.runtimes.conftest import FOREVER, PATIENCE, STUBBORN, Lab, a_key, exits, output_of, raw, script
from tests.runtimes.test_conformance_surroundings import NUMBER, printed


def folder_of(root: Path, key: ContainerKey) -> Folder:
    return Folder((root / "state/oci").resolve(), key)


def runs(folder: Folder) -> list[int]:
    """Processes that have the container's root."""
    return [pid for pid in process_table.pids() if process_table.look(pid) and oci_container.belongs(pid, folder)]


async def none_runs(folder: Folder) -> None:
    async with asyncio.timeout(PATIENCE):
        while runs(folder):  # noqa: ASYNC110 - nothing tells of processes
            await asyncio.sleep(0.01)


def crun_of(folder: Folder) -> int:
    process = process_table.look(oci_container.init_pid(folder))
    assert process
    return process.parent


# What the containers of a pod share


async def test_a_pod_has_a_hostname_and_name_servers(lab: Lab) -> None:
    pod = {"hostname": "my-host", "dns": Dns(servers=["10.1.2.3"], searches=["a.example"])}
    found = await printed(
        lab, "hostname; cat /etc/hostname; echo $HOSTNAME; cat /etc/resolv.conf; grep -c my-host /etc/hosts", pod=pod
    )

    assert found.splitlines() == ["my-host", "my-host", "my-host", "search a.example", "nameserver 10.1.2.3", "1"]


async def test_containers_of_a_pod_share_memory_segments_but_not_the_node_s(lab: Lab) -> None:
    first, second = [await printed(lab, "readlink /proc/self/ns/ipc", a_key(name=name)) for name in "ab"]

    assert first == second != os.readlink("/proc/self/ns/ipc") + "\n"


async def test_containers_of_a_pod_share_a_memory_file_system_that_no_other_pod_sees(lab: Lab) -> None:
    see = "cat /dev/shm/* 2>/dev/null; stat -c %a /dev/shm; df -k /dev/shm | tail -n 1 | awk '{print $2}'; :"
    await printed(lab, "echo mine > /dev/shm/file", a_key(name="a"))

    assert (await printed(lab, see, a_key(name="b"))).split() == ["mine", "1777", "65536"]
    assert (await printed(lab, see, a_key(pod="pod-2"))).split() == ["1777", "65536"]
    assert not [*NODE_SHM.glob("file")]


async def test_a_pod_with_the_node_s_ipc_has_the_node_s_memory_file_system(lab: Lab) -> None:
    with tempfile.NamedTemporaryFile(dir=NODE_SHM) as file:
        assert await printed(lab, f"ls {file.name}", pod={"host_ipc": True}) == f"{file.name}\n"


@pytest.mark.parametrize(
    ("pod", "own", "others"),
    [
        pytest.param({}, True, 0, id="its own alone"),
        pytest.param({"share_pid": True}, False, 1, id="its pod's, if they are shared"),
        pytest.param({"host_pid": True}, False, 1, id="the node's, if that is asked"),
    ],
)
async def test_a_container_sees_processes(lab: Lab, pod: dict[str, Any], own: bool, others: int) -> None:
    await lab.start(script("exec sleep 4711"), a_key(name="other"), pod=pod)
    pid, seen = (await printed(lab, NUMBER, pod=pod)).split()

    assert (int(pid) == 1) == own
    assert int(seen) >= others
    assert others or seen == "0"


async def test_a_dead_sandbox_is_replaced_and_what_ran_in_it_stays_known(lab: Lab) -> None:
    key = (await lab.run(exits(3))).key
    holder = lab.runtime._sandboxes.find("pod-1").holder  # type: ignore[attr-defined]
    os.kill(holder.pid, signal.SIGKILL)
    async with asyncio.timeout(PATIENCE):
        while await lab.runtime.sandboxes():  # noqa: ASYNC110 - nothing tells of sandboxes
            await asyncio.sleep(0.01)

    assert (await lab.run(exits(4), a_key(attempt=1))).exit_code == 4
    assert (await lab.runtime.status(key)).exit_code == 3  # type: ignore[union-attr]


async def test_what_a_container_writes_to_its_root_counts(lab: Lab) -> None:
    key = await lab.start(script("dd if=/dev/zero of=/root/data bs=1M count=3 2>&-; echo ready; exec sleep 1000"))
    await lab.logged(key, b"ready")
    (used,) = await lab.runtime.usage()

    assert used.disk >= 3 << 20
    assert used.folders == ()  # else it would count twice
    assert next(iter(await lab.runtime.usage())).disk >= 3 << 20  # from the last look


async def test_a_container_goes_on_without_its_sandbox_and_the_next_one_has_another_address(lab: Lab) -> None:
    key = await lab.start(FOREVER)
    before = await lab.sandbox()
    os.kill(lab.runtime._sandboxes.find("pod-1").holder.pid, signal.SIGKILL)  # type: ignore[attr-defined]
    async with asyncio.timeout(PATIENCE):
        while await lab.runtime.sandboxes():  # noqa: ASYNC110 - nothing tells of sandboxes
            await asyncio.sleep(0.01)
    after = await lab.sandbox()

    assert (await lab.runtime.status(key)).state == "running"  # type: ignore[union-attr]
    assert (await lab.stop(key, 10)).exit_code == 143
    assert [*await lab.runtime.sandboxes()] == [after]
    assert not before.ip or before.ip != after.ip


# What is refused


async def test_devices_are_not_made(lab: Lab) -> None:
    with pytest.raises(StartError, match="MKNOD is not available"):
        await lab.start(exits(0), security=Security(add=["MKNOD"]))
    found = await printed(lab, "mknod /tmp/disk b 8 0 2>&1 || echo refused", a_key(attempt=1))

    assert found.endswith("refused\n")


async def test_nobody_gains_a_capability_that_was_dropped(lab: Lab) -> None:
    security = Security(drop=["ALL"], no_new_privileges=True)

    assert "refused" in await printed(lab, "chown 1:1 /etc/passwd || echo refused", security=security)


async def test_a_profile_that_was_compiled_before_holds_as_well(lab: Lab, tmp_path: Path) -> None:
    profile = tmp_path / "profile.json"
    rule = '{"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO"}'
    profile.write_text(f'{{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{rule}]}}')
    security = Security(seccomp=str(profile))
    await lab.start(FOREVER, a_key(name="first"), security=security)
    found = await printed(lab, "mkdir /tmp/new || echo refused; grep Seccomp /proc/self/status", security=security)

    content = folder_of(tmp_path, a_key()).read("config.json", 1 << 20)
    assert content
    assert b"seccomp_bpf_data" in content.data
    assert "refused" in found
    assert "Seccomp:\t2" in found


# Kills. Whatever is killed, what the runtime says of the container has become true by then.


async def test_a_container_ends_with_its_crun(lab: Lab, tmp_path: Path) -> None:
    key = await lab.start(STUBBORN)
    folder = folder_of(tmp_path, key)
    await lab.logged(key, b"ready")
    os.kill(crun_of(folder), signal.SIGKILL)

    assert (await lab.ended(key)).exit_code == 137
    await none_runs(folder)


async def test_a_container_whose_shim_is_killed_is_unknown_and_does_not_run(lab: Lab, tmp_path: Path) -> None:
    key = await lab.start(STUBBORN)
    folder = folder_of(tmp_path, key)
    await lab.logged(key, b"ready")
    shim = folder.shim()
    assert shim
    os.kill(shim.pid, signal.SIGKILL)
    status = await lab.ended(key)

    assert (status.exit_code, status.reason) == (None, "ContainerStatusUnknown")
    await none_runs(folder)


@pytest.mark.parametrize("whom", ["crun", "shim", "both"])
async def test_what_is_killed_while_there_is_no_agent_does_not_go_on(lab: Lab, tmp_path: Path, whom: str) -> None:
    key = await lab.start(STUBBORN)
    folder = folder_of(tmp_path, key)
    await lab.logged(key, b"ready")
    crun, shim = crun_of(folder), folder.shim()
    assert shim
    await lab.runtime.close()
    for pid in {"crun": [crun], "shim": [shim.pid], "both": [shim.pid, crun]}[whom]:
        os.kill(pid, signal.SIGKILL)
    if whom == "crun":  # the shim sees to it itself
        await none_runs(folder)
    await lab.restart()

    status = await lab.ended(key)
    assert (status.exit_code, status.reason) == ((137, "Error") if whom == "crun" else (None, "ContainerStatusUnknown"))
    await none_runs(folder)
    assert raw(await lab.log(key)) == b"ready\n"


async def test_containers_go_on_without_the_fork_server_and_others_get_a_new_one(lab: Lab) -> None:
    key = await lab.start(FOREVER)
    os.kill(lab.runtime._forks._pid, signal.SIGKILL)  # type: ignore[attr-defined]

    assert (await lab.run(exits(3), a_key(attempt=1))).exit_code == 3
    assert (await lab.runtime.status(key)).state == "running"  # type: ignore[union-attr]
    assert (await lab.stop(key, 10)).exit_code == 143


async def test_a_container_inherits_no_file_and_no_ignored_signal(lab: Lab) -> None:
    *files, ignored = (await printed(lab, "ls /proc/self/fd; grep SigIgn /proc/self/status | cut -f 2")).split()
    ours = (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE, signal.SIGTERM, signal.SIGCHLD, signal.SIGXFSZ)

    assert files == ["0", "1", "2", "3"]  # the last is that of `ls`
    assert [each for each in ours if int(ignored, 16) >> (each - 1) & 1] == []


async def test_a_command_of_an_agent_that_died_is_ended_by_the_next(lab: Lab, tmp_path: Path) -> None:
    key = await lab.start(FOREVER)
    session = await lab.runtime.execute(key, ["sh", "-c", "trap '' HUP TERM; echo started; sleep 4712; echo"])
    async for _, data in session.output():
        assert data == b"started\n"
        break
    folder = folder_of(tmp_path, key)
    assert len(runs(folder)) > 2  # the container's two, and the command's
    await lab.restart()
    async with asyncio.timeout(PATIENCE):
        while len(runs(folder)) > 2:  # noqa: ASYNC110 - nothing tells of processes
            await asyncio.sleep(0.01)
    assert [status.state for status in await lab.runtime.list()] == ["running"]
    assert not [name for name in os.listdir(folder.path) if name.startswith("exec-")]


async def test_a_command_that_is_closed_after_its_container_ended_is_harmless(lab: Lab) -> None:
    key = await lab.start(FOREVER)
    session = await lab.runtime.execute(key, ["sleep", "1000"])
    await lab.stop(key, 0)

    await output_of(session)
    await session.close()


async def test_nothing_of_a_removed_pod_is_left(lab: Lab, tmp_path: Path) -> None:
    await lab.start(STUBBORN)
    holder = lab.runtime._sandboxes.find("pod-1").holder  # type: ignore[attr-defined]
    await lab.runtime.remove_sandbox("pod-1")

    assert process_table.look(holder.pid) is None
    assert [name for name in os.listdir(tmp_path / "state/oci") if not name.startswith(".lock")] == []
    assert str(tmp_path) not in Path("/proc/self/mountinfo").read_text()


async def test_a_pod_that_is_removed_while_a_container_starts_leaves_nothing(lab: Lab, tmp_path: Path) -> None:
    folder = folder_of(tmp_path, a_key())
    await lab.sandbox()
    starting = asyncio.create_task(lab.start(FOREVER))
    while not folder.path.exists() and not starting.done():  # noqa: ASYNC110 - nothing tells of folders
        await asyncio.sleep(0)
    await lab.runtime.remove_sandbox("pod-1")
    with suppress(StartError):
        await starting
        await lab.runtime.remove_sandbox("pod-1")

    assert await lab.runtime.list() == []
    assert [name for name in os.listdir(tmp_path / "state/oci") if not name.startswith(".lock")] == []
    await none_runs(folder)


@pytest.mark.parametrize("kept", [True, False], ids=["all files are on disk", "the word that it was let go is not"])
async def test_after_a_crash_of_the_machine_nothing_is_taken_for_alive(lab: Lab, tmp_path: Path, *, kept: bool) -> None:
    """As if it had booted again: all processes, mounts and cgroups are gone, and pids are others', such as ours."""
    ended = (await lab.run(script("echo one; exit 5"), a_key(name="ended"))).key
    key = await lab.start(STUBBORN)
    await lab.logged(key, b"ready")
    folder, pod = folder_of(tmp_path, key), tmp_path / "state/oci/pod-1"
    holder, shim = lab.runtime._sandboxes.find("pod-1").holder, folder.shim()  # type: ignore[attr-defined]
    assert shim
    address = (await lab.sandbox()).ip
    await lab.runtime.close()
    for pid in (shim.pid, crun_of(folder), *runs(folder), holder.pid):
        process_table.kill(pid, signal.SIGKILL)
    await none_runs(folder)
    await cgroup.remove_until_gone([each for one in (key, ended) for each in folder_of(tmp_path, one).cgroups()])
    for path in (path for path in pod.rglob("*") if path.is_file() and path.stat().st_size < 1 << 16):
        content = path.read_bytes().replace(holder.boot.encode(), b"0" * len(holder.boot))
        content = content.replace(b'"shim":[%d,' % shim.pid, b'"shim":[%d,' % os.getpid())
        path.write_bytes(content.replace(b'"pid":%d' % holder.pid, b'"pid":%d' % os.getpid()))
    (folder.path / "pid").write_bytes(b"%d" % os.getpid())
    if not kept:
        (folder.path / "run").unlink()
    await lab.restart()

    status = await lab.ended(key)
    assert (status.exit_code, status.reason) == (None, "ContainerStatusUnknown")
    assert raw(await lab.log(key)) == b"ready\n"
    assert ((await lab.ended(ended)).exit_code, raw(await lab.log(ended))) == (5, b"one\n")
    assert [*await lab.runtime.sandboxes()] == []
    after = await lab.sandbox()
    assert not address or after.ip != address
    assert (await lab.run(exits(0))).reason == "ContainerStatusUnknown"  # not once more
    assert (await lab.run(exits(3), a_key(attempt=1))).exit_code == 3
    await lab.runtime.remove_sandbox("pod-1")
    assert not pod.exists()
    assert str(tmp_path) not in Path("/proc/self/mountinfo").read_text()
    assert await lab.runtime.list() == []
    async with asyncio.timeout(PATIENCE):  # the kernel takes the links away a moment after the last process
        while link_of(address) in os.listdir("/sys/class/net"):  # noqa: ASYNC110 - nothing tells of links
            await asyncio.sleep(0.05)


def link_of(address: str) -> str:
    """The node's end; of a pod without an address, there is none."""
    return f"jpv{int(IPv4Address(address)):08x}" if address else "none"

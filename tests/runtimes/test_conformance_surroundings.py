"""What every runtime promises of a container's surroundings: files, rights, limits, names and networks, as far as declared."""

import asyncio
import os
import shutil
import stat
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.runtimes.base import ContainerKey, Dns, Mount, Port, ResourceLimits, Security, StartError
from tests.runtimes.conftest import FOREVER, PATIENCE, Behaviour, Lab, a_key, raw, script

MIB = 1 << 20


async def printed(lab: Lab, text: str, key: ContainerKey | None = None, **more: Any) -> str:
    """What a container writes that runs this script, which has to succeed."""
    status = await lab.run(script(f"exec 2>&1; {text}"), key, **more)
    found = raw(await lab.log(status.key)).decode(errors="replace")
    assert (status.exit_code, status.reason) == (0, "Completed"), found
    return found


def status_fields(text: str) -> Mapping[str, str]:
    """Of /proc/PID/status."""
    return {name: value.strip() for name, _, value in (line.partition(":") for line in text.splitlines())}


# Command and environment


@pytest.mark.needs("runs_commands")
async def test_the_environment_is_as_told(lab: Lab) -> None:
    env = {"PLAIN": "one", "ODD": "a b\n$c'\"=ü", "EMPTY": "", "with.dot": "1"}
    status = await lab.run(Behaviour(["env", "-0"], {}), env={"PATH": os.defpath, **env})
    found = raw(await lab.log(status.key)).decode().split("\0")

    assert {f"{name}={value}" for name, value in env.items()} <= set(found)


@pytest.mark.needs("runs_commands")
async def test_arguments_follow_the_command(lab: Lab) -> None:
    assert await printed(lab, 'printf "%s;" "$@"', args=["zero", "one", "t w o", ""]) == "one;t w o;;"


@pytest.mark.needs("runs_commands")
async def test_it_begins_in_its_working_directory(lab: Lab) -> None:
    assert await printed(lab, "pwd", working_dir="/usr/bin") == "/usr/bin\n"


@pytest.mark.needs("images")
async def test_without_a_command_the_image_s_runs(lab: Lab) -> None:
    assert (await lab.run(Behaviour([], {}))).exit_code == 0  # a shell that has nothing to read


# Files


@pytest.mark.needs("runs_commands", "mounts")
async def test_what_is_mounted_can_be_read_and_written(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "in").write_text("from outside\n")
    mounts = [Mount(source=tmp_path, target="/mnt/shared")]

    assert (
        await printed(lab, "cat /mnt/shared/in; echo from inside > /mnt/shared/out", mounts=mounts) == "from outside\n"
    )
    assert (tmp_path / "out").read_text() == "from inside\n"


@pytest.mark.needs("runs_commands", "mounts")
async def test_what_is_mounted_read_only_is_not_written(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("kept")
    (tmp_path / "folder").mkdir()
    mounts = [
        Mount(source=tmp_path / "file", target="/mnt/file", read_only=True),
        Mount(source=tmp_path / "folder", target="/mnt/folder", read_only=True),
    ]
    text = "cat /mnt/file; echo lost > /mnt/file || touch /mnt/folder/new || echo ' refused'"

    assert (await printed(lab, text, mounts=mounts)).endswith("refused\n")
    assert (tmp_path / "file").read_text() == "kept"
    assert not [*(tmp_path / "folder").iterdir()]


@pytest.mark.needs("runs_commands", "mounts")
async def test_containers_share_what_both_mount(lab: Lab, tmp_path: Path) -> None:
    mounts = [Mount(source=tmp_path, target="/mnt/shared")]
    await printed(lab, "echo hello > /mnt/shared/word", a_key(name="first"), mounts=mounts)

    assert await printed(lab, "cat /mnt/shared/word", a_key(name="second"), mounts=mounts) == "hello\n"


@pytest.mark.needs("runs_commands", "mounts")
@pytest.mark.parametrize("path", ["/dev/termination-log", "/tmp/last-words"])
async def test_a_termination_message_is_told(lab: Lab, path: str) -> None:
    # Plain processes have no /dev of their own, and are told of another file.
    text = f'printf "last\\nwords" > "${{JOBPLANE_TERMINATION_LOG:-{path}}}"; exit 3'
    status = await lab.run(script(text), termination_message_path=path)

    assert (status.termination_message, status.exit_code) == ("last\nwords", 3)


@pytest.mark.needs("images")
async def test_of_a_long_termination_message_the_end_is_told(lab: Lab) -> None:
    fill = "head -c 5000 /dev/zero | tr '\\0' x > /dev/termination-log; printf end >> /dev/termination-log"
    status = await lab.run(script(fill))

    assert status.termination_message == "x" * 4093 + "end"


# Rights


@pytest.mark.needs("security")
async def test_it_runs_as_the_user_and_groups_that_it_is_told(lab: Lab) -> None:
    security = Security(user=1000, group=3000, groups=[4000, 5000])

    assert await printed(lab, "id -u; id -g; id -G", security=security) == "1000\n3000\n3000 4000 5000\n"


@pytest.mark.needs("security")
async def test_a_group_alone_leaves_the_user_to_the_image(lab: Lab) -> None:
    assert await printed(lab, "id -u; id -g", security=Security(group=3000)) == "0\n3000\n"


@pytest.mark.needs("security")
@pytest.mark.parametrize(
    ("security", "expected"),
    [
        pytest.param(Security(drop=["ALL"]), 0, id="none"),
        pytest.param(Security(drop=["ALL"], add=["NET_BIND_SERVICE"]), 1 << 10, id="one that is added to none"),
        pytest.param(Security(user=1000), 0, id="none in effect for who is not root"),
    ],
)
async def test_a_container_has_capabilities(lab: Lab, security: Security, expected: int) -> None:
    found = status_fields(await printed(lab, "cat /proc/self/status", security=security))

    assert int(found["CapEff"], 16) == expected


@pytest.mark.needs("security")
async def test_no_new_privileges_holds(lab: Lab) -> None:
    found = await printed(lab, "cat /proc/self/status", security=Security(no_new_privileges=True))

    assert status_fields(found)["NoNewPrivs"] == "1"


@pytest.mark.needs("seccomp")
@pytest.mark.parametrize(("profile", "mode"), [("RuntimeDefault", "2"), ("Unconfined", "0")])
async def test_a_seccomp_profile_holds(lab: Lab, profile: str, mode: str) -> None:
    found = await printed(lab, "cat /proc/self/status", security=Security(seccomp=profile))

    assert status_fields(found)["Seccomp"] == mode


@pytest.mark.needs("seccomp")
async def test_a_seccomp_profile_of_one_s_own_holds(lab: Lab, tmp_path: Path) -> None:
    profile = tmp_path / "profile.json"
    profile.write_text(
        '{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO"}]}'
    )
    text = "mkdir /tmp/new || echo refused"

    assert (await printed(lab, text, security=Security(seccomp=str(profile)))).endswith("refused\n")


@pytest.mark.needs("security")
async def test_a_read_only_root_is_not_written(lab: Lab, tmp_path: Path) -> None:
    mounts = [Mount(source=tmp_path, target="/mnt")]
    text = "touch /mnt/new; touch /etc/new || echo refused"

    assert (await printed(lab, text, security=Security(read_only_root=True), mounts=mounts)).endswith("refused\n")
    assert (tmp_path / "new").exists()


@pytest.mark.needs("security")
async def test_a_privileged_container_has_all_that_the_node_has(lab: Lab) -> None:
    """A machine whose root lacks some capability cannot give it to a container either: engines may refuse to start it."""
    own = status_fields(Path("/proc/self/status").read_text())["CapBnd"]
    last = int(Path("/proc/sys/kernel/cap_last_cap").read_text())
    privileged: dict[str, Any] = {"security": Security(privileged=True), "pod": {"privileged": True}}
    refused = ""
    try:
        found = status_fields(await printed(lab, "cat /proc/self/status", **privileged))["CapEff"]
    except StartError as error:
        found, refused = own, str(error)

    assert found == own
    assert not refused or ("cap" in refused and int(own, 16) != (1 << last + 1) - 1)


@pytest.mark.needs("security")
async def test_a_device_can_be_used_by_who_was_given_it(lab: Lab, tmp_path: Path) -> None:
    device = tmp_path / "zero"
    if os.geteuid() == 0:
        os.mknod(device, stat.S_IFCHR | 0o666, os.makedev(1, 5))
    else:
        device = Path("/dev/zero")

    assert await printed(lab, f"head -c 3 {device} | tr '\\0' z", devices=[str(device)]) == "zzz"


# Limits


@pytest.mark.needs("limits")
@pytest.mark.parametrize("text", ["exec tail /dev/zero", "tail /dev/zero; exit $?"], ids=["itself", "its child"])
async def test_what_uses_too_much_memory_is_oom_killed(lab: Lab, text: str) -> None:
    status = await lab.run(script(text), limits=ResourceLimits(memory=32 * MIB))

    assert (status.exit_code, status.reason) == (137, "OOMKilled")


@pytest.mark.needs("limits")
async def test_a_cpu_limit_holds(lab: Lab) -> None:
    text = "timeout 2 sh -c 'while :; do :; done'; times"
    found = await printed(lab, text, limits=ResourceLimits(cpu=100, cpu_request=50))
    minutes, _, seconds = found.split()[-2].rstrip("s").partition("m")

    assert int(minutes) * 60 + float(seconds) < 1


@pytest.mark.needs("runs_commands")
async def test_what_it_uses_is_told(lab: Lab) -> None:
    key = await lab.start(script("while :; do :; done"))
    async with asyncio.timeout(PATIENCE):
        while not (found := [used for used in await lab.runtime.usage() if used.cpu > 0 and used.memory > 0]):  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.05)  # engines take a look now and then only
    assert [used.key for used in found] == [key]


# Names and networks


@pytest.mark.needs("pod_network")
async def test_the_hostname_is_the_pod_s(lab: Lab) -> None:
    assert await printed(lab, "hostname", pod={"hostname": "my-host"}) == "my-host\n"


@pytest.mark.needs("pod_network")
async def test_names_are_resolved_as_told(lab: Lab) -> None:
    dns = Dns(servers=["10.1.2.3"], searches=["a.example", "b.example"], options=["ndots:5"])
    found = await printed(lab, "cat /etc/resolv.conf", pod={"dns": dns})

    assert [line.split() for line in found.splitlines()] == [
        ["search", "a.example", "b.example"],
        ["nameserver", "10.1.2.3"],
        ["options", "ndots:5"],
    ]


SERVE = "mkdir -p /tmp/www; echo hello > /tmp/www/index.html; exec httpd -f -p {} -h /tmp/www"
FETCH = "until wget -qO- http://{}/; do sleep 0.05; done 2>/dev/null"


@pytest.mark.needs("pod_network")
async def test_containers_of_a_pod_share_its_loopback(lab: Lab) -> None:
    await lab.start(script(SERVE.format("127.0.0.1:8080")), a_key(name="server"))

    assert await printed(lab, FETCH.format("127.0.0.1:8080"), a_key(name="client")) == "hello\n"


@pytest.mark.needs("pod_network")
async def test_pods_reach_each_other_by_address(lab: Lab) -> None:
    address = (await lab.sandbox("pod-1")).ip
    await lab.start(script(SERVE.format("8080")), a_key())

    assert await printed(lab, FETCH.format(f"{address}:8080"), a_key("pod-2")) == "hello\n"
    assert {each.pod_uid: each.ip for each in await lab.runtime.sandboxes()}["pod-1"] == address


@pytest.mark.needs("pod_network")
async def test_a_published_port_is_reached_at_the_node(lab: Lab, unused_tcp_port: int) -> None:
    ports = [Port("TCP", 8080, unused_tcp_port), Port("UDP", 8080, unused_tcp_port, "127.0.0.1")]
    for pod in ("pod-1", "pod-2"):  # after the first the port is free again
        await lab.start(script(SERVE.format("8080")), a_key(pod), pod={"ports": ports})
        assert await _page(unused_tcp_port) == "hello\n"
        await lab.runtime.remove_sandbox(pod)


@pytest.mark.needs("runs_commands")
@pytest.mark.lacks("pod_network")
async def test_without_networks_of_their_own_pods_listen_at_the_node(
    lab: Lab, unused_tcp_port: int, tmp_path: Path
) -> None:
    (tmp_path / "index.html").write_text("hello\n")
    python = shutil.which("python3", path="/usr/bin") or sys.executable  # any user may run it
    serve = f"exec {python} -m http.server {unused_tcp_port} --directory {tmp_path}"
    if (await lab.runtime.info()).images:
        serve = f"exec httpd -f -p {unused_tcp_port} -h {tmp_path}"
    await lab.start(
        script(serve), pod={"ports": [Port("TCP", unused_tcp_port, unused_tcp_port)]}, mounts=await lab.shared(tmp_path)
    )

    assert await _page(unused_tcp_port) == "hello\n"


async def _page(port: int) -> str:
    """What is served at a port of the node, once it is."""
    async with asyncio.timeout(PATIENCE), httpx.AsyncClient(timeout=1, trust_env=False) as client:
        while True:
            try:
                return (await client.get(f"http://127.0.0.1:{port}/")).text
            except httpx.TransportError:
                await asyncio.sleep(0.05)


@pytest.mark.needs("pod_network")
async def test_a_sandbox_keeps_its_address_for_a_restarted_agent(lab: Lab) -> None:
    before = await lab.sandbox("pod-1")
    await lab.restart()

    assert await lab.sandbox("pod-1") == before
    assert [*await lab.runtime.sandboxes()] == [before]


@pytest.mark.needs("pod_network")
async def test_a_pod_on_the_node_s_network_has_no_address_of_its_own(lab: Lab) -> None:
    found = await printed(lab, "readlink /proc/self/ns/net; hostname", pod={"host_network": True})

    assert (await lab.sandbox("pod-1", host_network=True)).ip == ""
    assert found.splitlines() == [os.readlink("/proc/self/ns/net"), os.uname().nodename]


NUMBER = 'echo $$; grep -ac "slee[p].4711" /proc/[0-9]*/cmdline 2>&- | grep -c ":1" || true'


@pytest.mark.needs("pod_network")
@pytest.mark.parametrize(
    ("pod", "own", "others"),
    [
        pytest.param({}, True, 0, id="its own alone"),
        pytest.param({"share_pid": True}, False, 1, id="its pod's, if they are shared"),
        pytest.param({"host_pid": True}, False, 1, id="the node's, if that is asked"),
    ],
)
async def test_a_container_sees_processes(lab: Lab, pod: dict[str, bool], own: bool, others: int) -> None:
    await lab.start(script("exec sleep 4711"), a_key(name="other"), pod=pod)
    pid, seen = (await printed(lab, NUMBER, pod=pod)).split()

    assert (int(pid) == 1) == own
    assert int(seen) >= others
    assert others or seen == "0"


@pytest.mark.needs("pod_network")
@pytest.mark.parametrize("host", [False, True], ids=["of the pod", "of the node"])
async def test_containers_share_the_memory_segments(lab: Lab, host: bool) -> None:
    pod = {"host_ipc": host}
    first, second = [await printed(lab, "readlink /proc/self/ns/ipc", a_key(name=name), pod=pod) for name in "ab"]

    assert first == second
    assert (first.strip() == os.readlink("/proc/self/ns/ipc")) == host


async def test_nothing_is_left_of_a_removed_pod(lab: Lab) -> None:
    await lab.start(FOREVER)
    await lab.runtime.remove_sandbox("pod-1")

    assert await lab.runtime.list() == []
    assert [*await lab.runtime.sandboxes()] == []

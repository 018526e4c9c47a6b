"""What is particular to plain processes: what they see, what ends with them, what a restarted agent makes of it."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from app.runtimes.base import ContainerKey, StartError
from app.runtimes.linux import cgroup_roots, process_table
from app.runtimes.linux.process_table import Identity
from app.runtimes.logs.log_format import HEAD
from app.runtimes.process import launch as process_launch
from app.runtimes.process import logs as process_logs
from app.runtimes.process import status as process_status
from app.runtimes.process.files import Folder
from app.runtimes.process.launch import SHIM
from app.runtimes.process.runtime import ProcessRuntime
from tests.runtimes.conftest import FOREVER, LEAVES_ITS_SESSION, PATIENCE, Behaviour, Lab, a_key, exits, raw, script

ENV = Behaviour(["env", "-0"], {})


def folder(root: Path, key: ContainerKey | None = None) -> Folder:
    return Folder(root, key or a_key())


def files_with(root: Path, text: bytes) -> list[Path]:
    return [path for path in root.rglob("*") if path.is_file() and text in path.read_bytes()]


async def gone(pid: int) -> None:
    """Waits until a process is dead, whosever child it is."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    loop, dead = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(fd, dead.set)
    try:
        async with asyncio.timeout(PATIENCE):
            await dead.wait()
    finally:
        loop.remove_reader(fd)
        os.close(fd)


# What a container sees


async def environment(lab: Lab, **env: str) -> dict[str, str]:
    key = (await lab.run(ENV, env=env)).key
    pairs = raw(await lab.log(key) or b"").decode().split("\0")[:-1]
    return dict(pair.partition("=")[::2] for pair in pairs)


async def test_the_environment_is_the_container_s_and_nothing_of_the_agent_s(
    process: Lab, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENT_SECRET", "hunter2")
    home = str(root / "pod-1" / ".home")
    found = await environment(process, A="1\n2", EMPTY="")

    assert found.pop("PATH").startswith("/usr/local/sbin:")
    assert found.pop("JOBPLANE_TERMINATION_LOG").startswith(str(root))
    assert found == {"A": "1\n2", "EMPTY": "", "HOME": home, "PWD": home}


async def test_the_container_may_set_path_and_home_itself(process: Lab) -> None:
    found = await environment(process, PATH="/bin:/usr/bin", HOME="/")

    assert (found["PATH"], found["HOME"]) == ("/bin:/usr/bin", "/")


async def test_names_that_no_shell_can_spell_reach_the_container(process: Lab) -> None:
    found = await environment(process, **{"my.name": "ä", "a-b": "2", "plain": "3"})

    assert {"my.name": "ä", "a-b": "2", "plain": "3"}.items() <= found.items()
    assert not [name for name in found if "ODD" in name]


async def test_no_value_of_the_environment_is_kept_on_disk(process: Lab, root: Path) -> None:
    await process.run(exits(0), env={"TOKEN": "hunter2", "my.token": "hunter2"})

    assert not files_with(root, b"hunter2")


async def test_it_has_no_files_but_its_own_and_no_signal_ignored(process: Lab) -> None:
    key = (await process.run(script("ls /proc/self/fd; grep SigIgn /proc/self/status"))).key

    *files, _, ignored = raw(await process.log(key)).split()
    assert files == [b"0", b"1", b"2", b"3"]  # 3 is ls's own
    assert int(ignored, 16) & 0x7FFFFFFF == 0  # the two above are the C library's


async def test_it_works_in_a_folder_of_the_pod(process: Lab, root: Path) -> None:
    key = (await process.run(script("pwd"))).key

    assert raw(await process.log(key)).decode() == f"{root}/pod-1/.home\n"


async def test_it_works_where_it_is_told(process: Lab) -> None:
    assert raw(await process.log((await process.run(script("pwd"), working_dir="/usr")).key)) == b"/usr\n"


@pytest.mark.parametrize(
    ("command", "more", "message", "code"),
    [
        (["nope"], {}, 'exec: "nope": executable file not found in $PATH', 127),
        (["nope"], {"env": {"PATH": ""}}, 'exec: "nope": executable file not found in $PATH', 127),
        (["/no/such"], {}, 'exec: "/no/such": stat /no/such: no such file or directory', 127),
        (["./no"], {}, 'exec: "./no": stat ./no: no such file or directory', 127),
        (["/etc/passwd"], {}, 'exec: "/etc/passwd": permission denied', 126),
        (["/etc"], {}, 'exec: "/etc": is a directory', 126),
        (
            [],
            {},
            'the process runtime runs no images, so the command of image "localhost/jobplane/busybox:1" is not known',
            128,
        ),
        (["true"], {"working_dir": "/no/such"}, 'chdir to working directory "/no/such": no such directory', 128),
        (["true"], {"working_dir": "usr"}, 'working directory "usr" is not an absolute path', 128),
        (["true", "a\0b"], {}, 'exec: "true": embedded null byte', 128),
        (["true", "x" * 3_000_000], {}, 'exec: "true": [Errno 7] Argument list too long', 128),
        (["true"], {"env": {"A": "1\0"}}, 'exec: "true": embedded null byte', 128),
        (["true"], {"env": {"A=B": "1"}}, 'environment variable "A=B" has an impossible name or value', 128),
    ],
    ids=lambda value: "-".join(value)[:20] if isinstance(value, list) else "",
)
async def test_a_start_error_says_why(process: Lab, command: list[str], more: dict, message: str, code: int) -> None:
    with pytest.raises(StartError) as raised:
        await process.start(Behaviour(command, {}), **more)

    assert str(raised.value).startswith(message)
    assert raised.value.exit_code == code


@pytest.mark.parametrize("name", ["..", "../../x", "a/b", "", ".home", "a\0b", "x" * 300, "a\n"])
async def test_a_name_that_leads_elsewhere_is_refused(process: Lab, name: str) -> None:
    with pytest.raises(StartError, match="cannot name a folder"):
        await process.start(exits(0), a_key(name=name))
    with pytest.raises(ValueError, match="cannot name a folder"):
        await process.start(exits(0), a_key(pod=name))


# What ends with it


async def test_its_background_processes_end_with_it(process: Lab) -> None:
    key = (await process.run(script("sleep 1000 & echo $!"))).key

    await gone(int(raw(await process.log(key))))


async def test_a_stop_ends_its_other_process_groups_too(process: Lab) -> None:
    key = await process.start(script("timeout 1000 sleep 1000 & echo $!; echo ready; wait"))
    pid = int(raw(await process.logged(key, b"ready")).split()[0])
    await process.stop(key, 10)

    await gone(pid)


async def test_a_container_that_signals_its_own_group_does_not_reach_the_shim(process: Lab) -> None:
    assert (await process.run(script("trap 'exit 5' TERM; kill 0; sleep 1000"))).exit_code == 5
    assert (await process.run(script("kill -KILL 0"), a_key("pod-2"))).exit_code == 137


async def test_what_left_its_session_ends_with_the_cgroup(tmp_path: Path) -> None:
    cgroups = cgroup_roots.find(tmp_path).cgroups
    if cgroups is None:
        pytest.skip("no cgroup hierarchy that we may write to")
    lab = Lab(lambda: ProcessRuntime(tmp_path / "state", cgroups=cgroups))
    key = await lab.start(script(f"{LEAVES_ITS_SESSION} echo $!"))
    await lab.ended(key)
    await gone(int(raw(await lab.log(key))))
    await lab.close()

    assert not [folder for folder in cgroups.folders.values() if folder.exists()]


async def test_a_code_is_unknown_when_the_shim_was_killed_and_nothing_goes_on(process: Lab, root: Path) -> None:
    key = await process.start(FOREVER)
    await process.logged(key, b"ready")
    main, shim = folder(root).main(), folder(root).shim()
    assert main
    assert shim
    os.kill(shim.pid, signal.SIGKILL)
    status = await process.ended(key)
    await gone(main.pid)

    assert (status.exit_code, status.reason) == (None, "ContainerStatusUnknown")
    await process.restart()
    assert await process.runtime.list() == [status]


async def test_a_hint_comes_when_a_quiet_container_writes_again(process: Lab, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "go")
    key = await process.start(script(f"echo one; cat {tmp_path}/go; echo two; exec sleep 1000"))
    await process.logged(key, b"one")
    (tmp_path / "go").write_text("")

    assert raw(await process.logged(key, b"two")) == b"one\ntwo\n"


async def test_logs_come_without_inotify_too(process: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> None:
        raise OSError("no inotify here")

    monkeypatch.setattr(process_logs, "Inotify", refused)
    await process.restart()
    key = await process.start(FOREVER)

    assert raw(await process.logged(key, b"ready")) == b"ready\n"


async def test_a_flood_of_output_holds_up_nobody(process: Lab) -> None:
    flood = await process.start(script("yes | head -c 20000000"))
    async with asyncio.timeout(PATIENCE):
        for number in range(5):
            await process.run(exits(0), a_key(f"quick-{number}"))
    await process.ended(flood)

    size = 0
    while data := (await process.runtime.read_log(flood, size, 4_000_000)).data:
        size += len(data)
    assert size == 10_000_000 * (HEAD + 2)


# What a restarted agent makes of it


async def test_one_agent_at_a_time_uses_a_folder(process: Lab, root: Path) -> None:
    with pytest.raises(RuntimeError, match="another agent uses"):
        ProcessRuntime(root)


@pytest.mark.parametrize(
    "known", [pytest.param(False, id="before"), pytest.param(True, id="after it was written down")]
)
async def test_a_container_that_was_never_let_go_is_started(process: Lab, root: Path, *, known: bool) -> None:
    await process.run(exits(0), a_key(name="other"))
    await process.runtime.close()
    folder(root).create()
    (folder(root).path / "out").touch()
    if known:
        folder(root).record({}, Identity(2**22, 1, process_table.boot_id()))
    await process.restart()
    assert [status.key.name for status in await process.runtime.list()] == ["other"]

    assert (await process.run(exits(3))).exit_code == 3


@pytest.mark.parametrize(
    ("line", "ran"), [pytest.param("", "", id="not let go"), pytest.param("go\n", "x\n", id="let go")]
)
async def test_a_shim_that_is_slow_to_begin_runs_once_or_never(
    process: Lab, root: Path, tmp_path: Path, line: str, ran: str
) -> None:
    """It lives when the next agent looks, and has yet to find whether the last one let it go."""
    await process.run(exits(0), a_key(name="other"))
    await process.runtime.close()
    trace = tmp_path / "trace"
    with slow_shim(folder(root), line, ["sh", "-c", f"echo x >>{trace}; exit 3"]):
        await process.restart()
        status = await process.run(script(f"echo y >>{trace}; exit 3"))

    assert (status.exit_code, status.reason) == (3, "Error")
    assert trace.read_text() == (ran or "y\n")


@contextmanager
def slow_shim(made: Folder, line: str, command: list[str]) -> Iterator[None]:
    """A shim of an agent that died after it had written down who the shim is. `line`: what it said before."""
    made.create()
    arguments = [str(SHIM), str(made.path), "/", "", process_launch.program("setsid"), "", sys.executable, "--"]
    shim = subprocess.Popen(
        ["sh", "-c", 'sleep 0.5; exec sh "$@"', "sh", *arguments, *command],
        stdin=subprocess.PIPE,
        start_new_session=True,
        text=True,
    )
    seen = process_table.look(shim.pid)
    assert seen
    made.record({}, Identity(seen.pid, seen.start, process_table.boot_id()))
    with shim:  # waits for its end
        assert shim.stdin
        shim.stdin.write(line)
        shim.stdin.close()
        yield


async def test_a_start_that_was_cut_short_is_told_and_not_repeated(process: Lab, root: Path) -> None:
    await process.run(exits(0), a_key(name="other"))
    await process.runtime.close()
    folder(root).create()
    folder(root).write("run", b"go\n")
    folder(root).record({}, Identity(2**22, 1, process_table.boot_id()))
    await process.restart()
    status = await process.run(exits(0))

    assert (status.reason, status.exit_code, status.message) == ("StartError", 128, process_status.NEVER_RAN)


@pytest.mark.parametrize("run", [None, b"", b"go\n"], ids=["no word", "an empty file", "the word"])
async def test_after_a_crash_of_the_machine_a_container_of_which_little_is_on_disk_does_not_run_again(
    process: Lab, root: Path, run: bytes | None
) -> None:
    """It may have run: what it wrote down of itself had not reached the disk."""
    ended = (await process.run(script("echo one; exit 5"), a_key(name="other"))).key
    await process.runtime.close()
    stranger = await asyncio.create_subprocess_exec("sleep", "1000")
    seen = process_table.look(stranger.pid)
    assert seen
    old = folder(root)
    old.create()
    old.record({}, Identity(seen.pid, seen.start, "x"))
    old.write("exec-1", b"%d %d\n" % (seen.pid, seen.start))
    if run is not None:
        old.write("run", run)
    await process.restart()
    status = await process.run(exits(0))

    assert (status.reason, status.exit_code) == ("ContainerStatusUnknown", None)
    assert (await process.ended(ended)).exit_code == 5
    assert raw(await process.log(ended)) == b"one\n"
    assert process_table.is_running(seen)
    stranger.kill()
    await stranger.wait()


@pytest.mark.parametrize("what", ["start", "boot"])
async def test_another_process_with_the_same_pid_is_not_taken_for_the_shim(process: Lab, root: Path, what: str) -> None:
    await process.run(exits(0), a_key(name="other"))
    await process.runtime.close()
    stranger = await asyncio.create_subprocess_exec("sleep", "1000")
    seen = process_table.look(stranger.pid)
    assert seen
    old = folder(root)
    old.create()
    boot = process_table.boot_id()
    shim = Identity(stranger.pid, seen.start - 1, boot) if what == "start" else Identity(stranger.pid, seen.start, "x")
    old.record({}, shim)
    old.write("run", f"go\n{seen.pid}\n{seen.pid} (sh) S 1 1 1{' 0' * 15} {shim.start}\n".encode())
    await process.restart()
    status = await process.ended(a_key())

    assert (status.reason, status.exit_code) == ("ContainerStatusUnknown", None)
    still = process_table.look(stranger.pid)
    stranger.kill()
    await stranger.wait()
    assert still
    assert still.start == seen.start


async def test_a_torn_record_is_written_again(process: Lab, root: Path) -> None:
    key = (await process.run(script("printf 'one\\ntwo\\n'"))).key  # one write, so one moment, however late it is read
    whole = await process.log(key)
    await process.runtime.close()
    os.truncate(folder(root).path / "log", len(whole) - 3)
    await process.restart()

    assert await process.log(key) == whole


async def test_a_container_that_truncates_its_own_output_loses_only_that(process: Lab) -> None:
    key = await process.start(script("echo first line; read x </dev/null; exec sh -c 'sleep 0.3; echo x >/dev/stdout'"))
    await process.logged(key, b"first line\n")
    await process.ended(key)

    assert raw(await process.log(key)) == b"first line\nx\n"


async def test_pods_that_were_removed_by_hand_are_forgotten(process: Lab, root: Path) -> None:
    await process.run(exits(0))
    os.rename(root / "pod-1", root / ".elsewhere")

    assert await process.runtime.list() == []


async def test_a_removed_pod_leaves_nothing_on_disk(process: Lab, root: Path) -> None:
    await process.run(script("mkdir deep; echo x >deep/file; chmod 0 deep"))
    await process.runtime.remove_sandbox("pod-1")

    assert os.listdir(root) == [".lock"]


# Files that the container has tampered with


@pytest.mark.parametrize(
    "trick",
    [
        pytest.param("ln -sf {secret} {file}", id="a link"),
        pytest.param("ln -f {secret} {file}", id="a second name"),
        pytest.param("rm -f {file}; mkfifo {file}", id="a pipe"),
        pytest.param("rm -f {file}; mknod {file} c 1 5", id="a device"),
        pytest.param("rm -f {file}; mkdir {file}", id="a folder"),
    ],
)
@pytest.mark.parametrize("name", ["out", "log", "message"])
async def test_nothing_foreign_is_read_through(process: Lab, root: Path, tmp_path: Path, trick: str, name: str) -> None:
    secret = tmp_path / "secret"
    secret.write_text("hunter2\n")
    text = trick.format(secret=secret, file=folder(root).path / name)
    status = await process.run(script(text))
    found = await process.runtime.read_log(status.key, 0, 1000)

    assert b"hunter2" not in found.data
    assert "hunter2" not in status.termination_message
    assert secret.read_text() == "hunter2\n"


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        pytest.param("printf 'it broke' >$F", "it broke", id="text"),
        pytest.param("head -c 1000000 /dev/zero | tr '\\0' a >$F; printf end >>$F", "a" * 4093 + "end", id="the end"),
        pytest.param("printf 'a\\377b' >$F", "a\ufffdb", id="replaced bytes"),
        pytest.param("printf 'a\\0b' >$F", "a\ufffdb", id="without NUL"),
        pytest.param("head -c 4096 /dev/zero | tr '\\0' '\\377' >$F", "\ufffd" * 1365, id="at most 4096 bytes"),
        pytest.param("true", "", id="nothing"),
    ],
)
async def test_the_termination_message_is(process: Lab, command: str, expected: str) -> None:
    status = await process.run(script(command.replace("$F", "$JOBPLANE_TERMINATION_LOG")))

    assert status.termination_message == expected

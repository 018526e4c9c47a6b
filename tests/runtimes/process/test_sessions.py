"""Commands in containers that are processes, and what outlives the agent for those who attach."""

import asyncio
import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app import open_files
from app.runtimes.base import Mount, Session, StartError
from app.runtimes.linux.process_table import look
from app.runtimes.process.runtime import ProcessRuntime
from tests.needs import lacking
from tests.runtimes.conftest import FOREVER, LEAVES_ITS_SESSION, PATIENCE, Lab, a_key, raw, script


async def everything(session: Session) -> tuple[bytes, bytes, int]:
    """All output, by stream, and the exit code; then it is over."""
    found = {"stdout": b"", "stderr": b""}
    async with asyncio.timeout(PATIENCE):
        async for stream, data in session.output():
            found[stream] += data
        code = await session.exit_code()
    await session.close()
    return found["stdout"], found["stderr"], code


async def executed(lab: Lab, text: str, **how: Any) -> tuple[bytes, bytes, int]:
    return await everything(await lab.runtime.execute(a_key(), ["sh", "-c", text], **how))


async def shown(session: Session, text: bytes) -> bytes:
    """What comes, until the text has."""
    found = b""
    async with asyncio.timeout(PATIENCE):
        async for _, data in session.output():
            found += data
            if text in found:
                return found
    raise AssertionError(found)


async def gone(pid: int) -> None:
    async with asyncio.timeout(PATIENCE):
        while look(pid):  # noqa: ASYNC110 - a stranger's end, of which nobody tells
            await asyncio.sleep(0.01)


async def test_a_command_has_what_its_container_has(process: Lab, tmp_path: Path) -> None:
    await process.start(FOREVER, env={"WHO": "a\nb", "my.odd": "name"}, working_dir=str(tmp_path))

    assert await executed(process, 'echo "$WHO"; pwd') == (f"a\nb\n{tmp_path}\n".encode(), b"", 0)
    python = "import os; print(os.environ['my.odd'])"
    assert await everything(await process.runtime.execute(a_key(), ["python3", "-c", python])) == (b"name\n", b"", 0)


async def test_a_command_sees_the_mounts_of_its_container(process: Lab, tmp_path: Path) -> None:
    info = await process.runtime.info()
    if not info.mounts:
        lacking("no bubblewrap")
    source = tmp_path / "source"
    source.mkdir()
    (source / "file").write_text("inside\n")
    await process.start(FOREVER, mounts=[Mount(source=source, target="/made-for-this-test")])

    assert await executed(process, "cat /made-for-this-test/file; exit 2") == (b"inside\n", b"", 2)
    assert not Path("/made-for-this-test").exists()
    out, _, code = await executed(process, "tty; tty </dev/tty", tty=True)
    assert (out[:9], out.split()[1], code) == (b"/dev/pts/", b"/dev/tty", 0)


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        pytest.param("nix", 127, 'exec: "nix": executable file not found in $PATH', id="on no path"),
        pytest.param("/nix", 127, 'exec: "/nix": stat /nix: no such file or directory', id="that is nowhere"),
        pytest.param("/etc/passwd", 126, 'exec: "/etc/passwd": permission denied', id="that is none"),
        pytest.param("/etc", 126, 'exec: "/etc": is a directory', id="that is a folder"),
    ],
)
async def test_a_program_is_refused(process: Lab, name: str, code: int, said: str) -> None:
    await process.start(FOREVER)
    with pytest.raises(StartError) as refusal:
        await process.runtime.execute(a_key(), [name])
    assert (str(refusal.value), refusal.value.exit_code) == (said, code)


async def test_a_container_that_has_ended_runs_nothing(process: Lab) -> None:
    await process.run(script("true"))
    with pytest.raises(StartError, match="not running"):
        await process.runtime.execute(a_key(), ["true"])


async def test_what_a_command_leaves_running_holds_nobody_up(process: Lab) -> None:
    await process.start(FOREVER)
    out, _, code = await executed(process, "sleep 1000 & echo $!")
    assert code == 0
    os.kill(int(out), 9)


async def test_hanging_up_kills_all_of_a_command(process: Lab) -> None:
    await process.start(FOREVER)
    session = await process.runtime.execute(a_key(), ["sh", "-c", "sleep 1000 & echo $!; trap '' TERM HUP; wait"])
    child = int(await shown(session, b"\n"))
    await session.close()
    await gone(child)
    assert (await process.runtime.status(a_key())).state == "running"  # type: ignore[union-attr]


async def test_a_command_ends_with_its_container(process: Lab) -> None:
    await process.start(FOREVER)
    session = await process.runtime.execute(a_key(), ["sleep", "1000"])
    await process.stop(a_key(), 0)
    assert await everything(session) == (b"", b"", 137)


async def test_the_next_agent_ends_what_was_executed(process: Lab) -> None:
    await process.start(FOREVER)
    session = await process.runtime.execute(a_key(), ["sh", "-c", "echo $$; exec sleep 1000"])
    pid = int(await shown(session, b"\n"))
    await process.restart()
    await gone(pid)
    await session.close()


async def test_input_is_bounded_and_broken_input_is_harmless(process: Lab) -> None:
    await process.start(FOREVER)
    session = await process.runtime.execute(a_key(), ["sleep", "1000"])
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await session.write(bytes(1 << 20))
    await session.close()
    session = await process.runtime.execute(a_key(), ["true"])
    await session.exit_code()
    await session.write(b"late")
    await session.end_input()
    await session.end_input()
    await session.close()


async def test_a_terminal_has_a_size_and_an_end(process: Lab) -> None:
    await process.start(FOREVER)
    session = await process.runtime.execute(a_key(), ["cat"], tty=True)
    await session.resize(90, 30)
    await session.write(b"hi\n")
    assert b"hi\r\nhi\r\n" in await shown(session, b"hi\r\nhi\r\n")
    await session.end_input()
    assert await session.exit_code() == 0
    await session.close()
    session = await process.runtime.execute(a_key(), ["sh", "-c", "read go; stty size"], tty=True)
    await session.resize(90, 30)
    await session.write(b"\n")
    assert b"30 90" in (await everything(session))[0]


# What outlives the agent


async def test_input_stays_open_for_whoever_attaches_next_and_for_the_next_agent(process: Lab) -> None:
    await process.start(script("while read line; do echo got $line; done; echo over"), stdin=True)
    for word in (b"one", b"two"):
        session = await process.runtime.attach(a_key())
        await session.write(word + b"\n")
        assert await shown(session, b"\n") == b"got " + word + b"\n"
        await session.end_input()
        await session.close()
        await process.restart()
    assert await process.runtime.read_log(a_key(), 0, 1)
    assert (await process.stop(a_key(), 0)).exit_code == 137


async def test_input_for_the_first_ends_with_the_first(process: Lab) -> None:
    await process.start(script("cat; echo over"), stdin=True, stdin_once=True)
    session = await process.runtime.attach(a_key())
    data = os.urandom(300_000).hex().encode()
    writing = asyncio.create_task(_sent(session, data))
    assert await everything(session) == (data + b"over\n", b"", 0)
    await writing
    assert (await process.ended(a_key())).exit_code == 0


async def _sent(session: Session, data: bytes) -> None:
    await session.write(data)
    await session.end_input()


async def test_without_input_there_is_none(process: Lab) -> None:
    await process.start(script("cat; echo over; exec sleep 1000"))
    session = await process.runtime.attach(a_key())
    await session.write(b"lost")
    await session.end_input()
    await process.logged(a_key(), b"over")
    await session.close()


async def test_a_terminal_outlives_the_agent(process: Lab) -> None:
    await process.start(script("tty; echo $TERM; exec sh -i"), stdin=True, tty=True)
    session = await process.runtime.attach(a_key())
    await session.resize(90, 30)
    await session.write(b"stty size; X=kept\n")
    await shown(session, b"30 90")
    await session.close()
    await process.restart()
    session = await process.runtime.attach(a_key())
    await session.write(b"echo it is $X; seq 2000; exit 5\n")
    out, _, _ = await everything(session)
    assert b"it is kept\r\n" in out
    assert (await process.ended(a_key())).exit_code == 5
    log = raw(await process.log(a_key()))
    assert log.startswith(b"/dev/pts/")
    assert b"\r\nxterm\r\n" in log[:40]
    assert b"\r\n2000\r\n" in log


async def test_a_terminal_whose_container_leaves_something_behind_does_not_hold_up_the_end(process: Lab) -> None:
    status = await process.run(script(f"{LEAVES_ITS_SESSION} echo $!; exit 3"), stdin=True, tty=True)
    assert status.exit_code == 3
    os.kill(int(raw(await process.log(a_key()))), 9)


async def test_nothing_of_a_keeper_stays_behind(process: Lab, root: Path) -> None:
    await process.start(FOREVER, stdin=True, tty=True)
    session = await process.runtime.attach(a_key())
    await session.write(b"x")
    await session.close()
    assert keepers(root)
    await process.runtime.remove_sandbox("pod-1")
    async with asyncio.timeout(PATIENCE):
        while keepers(root):  # noqa: ASYNC110 - a stranger's end, of which nobody tells
            await asyncio.sleep(0.01)


def keepers(root: Path) -> list[str]:
    found = []
    for name in os.listdir("/proc"):
        try:
            command = Path("/proc", name, "cmdline").read_bytes().decode() if name.isdecimal() else ""
        except OSError:
            continue
        if "keeper.py" in command and str(root) in command:
            found.append(name)
    return found


async def test_an_unfinished_line_is_seen_at_once(process: Lab) -> None:
    await process.start(script("read go; printf 'your name? '; read name; echo hello $name"), stdin=True)
    session = await process.runtime.attach(a_key())
    await session.write(b"\n")
    assert await shown(session, b"? ") == b"your name? "
    await session.write(b"Ada\n")
    await session.close()
    await process.ended(a_key())


# Ports


async def test_a_port_of_the_host_is_the_pods(process: Lab) -> None:
    await process.start(FOREVER)

    async def upper(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write((await reader.read()).upper())
        writer.close()

    server = await asyncio.start_server(upper, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        pipe = await process.runtime.dial("pod-1", port)
        await pipe.write(b"hi")
        await pipe.end()
        assert (await pipe.read(), await pipe.read()) == (b"HI", b"")
        await pipe.close()
    with pytest.raises(ConnectionError):
        await process.runtime.dial("pod-1", port)
    with pytest.raises(ConnectionError):
        await process.runtime.dial("pod-2", port)


async def test_terminals_are_declared(process: Lab) -> None:
    assert isinstance(process.runtime, ProcessRuntime)
    assert (await process.runtime.info()).terminals


@pytest.fixture
def raised_limit(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The soft limit of open files that this process had, before it raised it as an agent does."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    started_with = 512
    resource.setrlimit(resource.RLIMIT_NOFILE, (started_with, before[1]))
    monkeypatch.setattr(open_files._Limit, "started_with", None)
    open_files.raise_limit()
    yield started_with
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


async def test_a_container_may_open_as_many_files_as_the_agent_when_it_was_started(
    process: Lab, raised_limit: int
) -> None:
    both = "ulimit -Sn; ulimit -Hn"
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    expected = f"{raised_limit}\n{hard}\n".encode()
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == hard

    key = (await process.run(script(both))).key
    assert raw(await process.log(key) or b"") == expected

    await process.start(FOREVER, key=a_key("pod-2"))
    assert await everything(await process.runtime.execute(a_key("pod-2"), ["sh", "-c", both])) == (expected, b"", 0)

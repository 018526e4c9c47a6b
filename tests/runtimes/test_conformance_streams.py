"""What every runtime that runs commands promises of their streams: exec, attach, and connections to ports of pods."""

import asyncio

import pytest

from app.runtimes.base import ContainerKey, Session, StartError
from tests.runtimes.conftest import FOREVER, PATIENCE, Lab, a_key, exits, output_of, raw, script

pytestmark = pytest.mark.needs("runs_commands")


@pytest.fixture
async def key(lab: Lab) -> ContainerKey:
    """A running container."""
    return await lab.start(FOREVER)


async def execute(lab: Lab, key: ContainerKey, text: str, *, tty: bool = False) -> Session:
    return await lab.runtime.execute(key, ["sh", "-c", text], tty=tty)


async def code_of(session: Session) -> int:
    try:
        await output_of(session)
        async with asyncio.timeout(PATIENCE):
            return await session.exit_code()
    finally:
        await session.close()


async def said(session: Session, text: bytes) -> bytes:
    """What it writes until that holds the text. It may not be read after."""
    found = b""
    async with asyncio.timeout(PATIENCE):
        async for _, data in session.output():
            found += data
            if text in found:
                break
    return found


@pytest.mark.parametrize("code", [0, 1, 9, 255])
async def test_a_command_s_exit_code_is_told(lab: Lab, key: ContainerKey, code: int) -> None:
    session = await execute(lab, key, f"exit {code}")

    assert await code_of(session) == code


async def test_a_command_s_streams_come_apart(lab: Lab, key: ContainerKey) -> None:
    session = await execute(lab, key, r"printf 'out\377'; printf err >&2")

    assert await output_of(session) == {"stdout": b"out\xff", "stderr": b"err"}
    await session.close()


async def test_a_command_reads_until_its_input_ends(lab: Lab, key: ContainerKey) -> None:
    session = await execute(lab, key, "cat; echo end")
    for data in (b"one\n", b"t\xffo"):
        await session.write(data)
    await session.end_input()

    assert await output_of(session) == {"stdout": b"one\nt\xffoend\n"}
    assert await session.exit_code() == 0
    await session.close()


async def test_a_megabyte_goes_through_a_command_and_back(lab: Lab, key: ContainerKey) -> None:
    session = await execute(lab, key, "cat")
    sent = bytes(range(256)) * 4096

    async def feed() -> None:
        for at in range(0, len(sent), 50_000):
            await session.write(sent[at : at + 50_000])
        await session.end_input()

    feeding = asyncio.create_task(feed())
    assert (await output_of(session))["stdout"] == sent
    await feeding
    await session.close()


async def test_writing_to_a_command_that_has_ended_is_harmless(lab: Lab, key: ContainerKey) -> None:
    session = await execute(lab, key, "exit 3")
    await output_of(session)

    await session.write(b"too late")
    await session.end_input()
    assert await code_of(session) == 3


@pytest.mark.needs("terminals")
async def test_a_command_of_a_terminal_has_one(lab: Lab, key: ContainerKey) -> None:
    session = await execute(lab, key, "test -t 0 && test -t 1 && echo yes >&2", tty=True)

    assert await output_of(session) == {"stdout": b"yes\r\n"}
    assert await session.exit_code() == 0
    await session.close()


@pytest.mark.needs("terminals")
async def test_what_a_terminal_shows_last_is_not_lost(lab: Lab, key: ContainerKey) -> None:
    async def run() -> bytes:
        session = await execute(lab, key, "echo all", tty=True)
        try:
            return (await output_of(session)).get("stdout", b"")
        finally:
            await session.close()

    assert {*await asyncio.gather(*(run() for _ in range(16)))} == {b"all\r\n"}


@pytest.mark.needs("terminals")
async def test_a_terminal_is_as_large_as_it_is_told(lab: Lab, key: ContainerKey) -> None:
    session = await execute(lab, key, "until stty size 2>&- | grep '33 111'; do sleep 0.02; done", tty=True)
    await session.resize(111, 33)

    assert await output_of(session) == {"stdout": b"33 111\r\n"}
    await session.close()


async def test_commands_run_side_by_side(lab: Lab, key: ContainerKey) -> None:
    sessions = [await execute(lab, key, f"echo {number}; exit {number}") for number in range(8)]

    assert await asyncio.gather(*map(code_of, sessions)) == list(range(8))


async def test_a_command_that_is_not_there_is_a_start_error(lab: Lab, key: ContainerKey) -> None:
    with pytest.raises(StartError) as raised:  # at once, or when its exit code is asked for
        await code_of(await lab.runtime.execute(key, ["no-such-program"]))

    assert raised.value.exit_code == 127


@pytest.mark.parametrize("known", [True, False], ids=["that has ended", "that never was"])
async def test_nothing_runs_in_a_container(lab: Lab, known: bool) -> None:
    key = (await lab.run(exits(0))).key if known else a_key("nobody")

    with pytest.raises(StartError):
        await code_of(await lab.runtime.execute(key, ["true"]))


async def test_closing_kills_the_command_and_no_other(lab: Lab, key: ContainerKey) -> None:
    stubborn = "trap '' TERM HUP PIPE; echo started; sleep 1234{}; echo"
    sessions = [await execute(lab, key, stubborn.format(number)) for number in (1, 2, 2)]
    for session in sessions:
        assert await said(session, b"started") == b"started\n"
    await sessions[2].close()

    left = "until [ $(grep -al 'slee[p].1234{}' /proc/[0-9]*/cmdline | wc -l) = {} ]; do sleep 0.05; done"
    assert await code_of(await execute(lab, key, left.format(2, 2))) == 0
    assert await code_of(await execute(lab, key, left.format(1, 2))) == 0
    for session in sessions:
        await session.close()
    assert await code_of(await execute(lab, key, left.format("[12]", 0))) == 0


async def test_attaching_shows_what_is_written_from_now_on(lab: Lab) -> None:
    key = await lab.start(script("echo before; read line; echo got $line; echo err >&2; exit 5"), stdin=True)
    await lab.logged(key, b"before")
    session = await lab.runtime.attach(key)
    await session.write(b"this\n")

    assert await output_of(session) == {"stdout": b"got this\n", "stderr": b"err\n"}
    assert (await lab.ended(key)).exit_code == 5
    assert raw(await lab.log(key)) == b"before\ngot this\n"
    await session.close()


async def test_standard_input_ends_with_the_first_who_attached(lab: Lab) -> None:
    key = await lab.start(script("echo ready; cat; exit 4"), stdin=True, stdin_once=True)
    await lab.logged(key, b"ready")
    session = await lab.runtime.attach(key)
    await session.write(b"last\n")
    await session.end_input()

    assert (await output_of(session))["stdout"] == b"last\n"
    assert (await lab.ended(key)).exit_code == 4
    await session.close()


async def test_what_was_attached_to_goes_on_after_hanging_up(lab: Lab) -> None:
    key = await lab.start(script("echo ready; read line; echo got $line; read line; echo got $line"), stdin=True)
    await lab.logged(key, b"ready")
    for line in (b"one", b"two"):
        session = await lab.runtime.attach(key)
        await session.write(line + b"\n")
        await lab.logged(key, b"got " + line)
        await session.close()

    assert (await lab.ended(key)).exit_code == 0


@pytest.mark.needs("terminals")
async def test_a_container_with_a_terminal_is_attached_to_by_it(lab: Lab) -> None:
    key = await lab.start(script("test -t 0; echo terminal $?; read line; echo got $line"), stdin=True, tty=True)
    await lab.logged(key, b"terminal 0")
    session = await lab.runtime.attach(key)
    await session.resize(80, 24)
    await session.write(b"this\n")

    assert b"got this\r\n" in (await output_of(session))["stdout"]
    assert (await lab.ended(key)).exit_code == 0
    await session.close()


async def test_without_stdin_a_container_reads_nothing(lab: Lab) -> None:
    assert (await lab.run(script("read line || exit 6"))).exit_code == 6


@pytest.mark.parametrize("pod", [{}, {"host_network": True}], ids=["of its own network", "of the node's network"])
async def test_a_port_of_a_pod_can_be_dialled(lab: Lab, pod: dict[str, bool], unused_tcp_port: int) -> None:
    info = await lab.runtime.info()
    serve = f"nc -ll -p {unused_tcp_port} -e cat" if info.images else _python_echo(unused_tcp_port)
    await lab.start(script(f"while :; do {serve}; done"), pod=pod)

    assert await echoed(lab, unused_tcp_port, b"hello\xff") == b"hello\xff"


async def echoed(lab: Lab, port: int, data: bytes) -> bytes:
    found = b""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                pipe = await lab.runtime.dial("pod-1", port)
                break
            except ConnectionError:  # it does not listen yet
                await asyncio.sleep(0.05)
        await pipe.write(data)
        await pipe.end()
        while more := await pipe.read():
            found += more
        await pipe.close()
    return found


def _python_echo(port: int) -> str:
    code = f"""import socket
s = socket.create_server(("127.0.0.1", {port}))
while True:
    c, _ = s.accept()
    while d := c.recv(999): c.sendall(d)
    c.close()"""
    return f"exec python3 -c '{code}'"


@pytest.mark.parametrize("pod", ["pod-1", "nobody"], ids=["where nothing listens", "of a pod that is not there"])
async def test_a_port_cannot_be_dialled(lab: Lab, key: ContainerKey, pod: str, unused_tcp_port: int) -> None:
    with pytest.raises(ConnectionError):
        await lab.runtime.dial(pod, unused_tcp_port)

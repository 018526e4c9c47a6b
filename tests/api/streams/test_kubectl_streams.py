"""Real kubectl of every version at hand, against the transports of exec and port-forward."""

import asyncio
import os
import pty
import signal
import termios
from collections.abc import AsyncIterator
from pathlib import Path
from typing import BinaryIO

import pytest

from app.api.auth import certificates
from tests.api.servers import listening, made
from tests.e2e.kubectl import oldest_and_newest

KUBECTLS = [pytest.param(path, id=path.name.removeprefix("kubectl.")) for path in oldest_and_newest()]
pytestmark = pytest.mark.skipif(not KUBECTLS, reason="kubectl is not installed")


@pytest.fixture(scope="session")
def tls(tmp_path_factory: pytest.TempPathFactory) -> certificates.Certificates:
    return certificates.ensure(tmp_path_factory.mktemp("tls"), ["127.0.0.1"])


@pytest.fixture
async def home(tmp_path: Path, tls: certificates.Certificates) -> AsyncIterator[Path]:
    """A folder with the kubeconfig of a server that runs."""
    async with listening(made(), ssl_certfile=str(tls.cert), ssl_keyfile=str(tls.key)) as port:
        text = certificates.kubeconfig(f"https://127.0.0.1:{port}", tls.ca.read_text(), "token")
        (tmp_path / "config").write_text(text)
        yield tmp_path


async def start(path: Path, home: Path, *arguments: str, **pipes: int) -> asyncio.subprocess.Process:
    variables = {"HOME": str(home), "PATH": os.environ["PATH"], "KUBECONFIG": str(home / "config")}
    usual = dict.fromkeys(("stdin", "stdout", "stderr"), asyncio.subprocess.PIPE)
    return await asyncio.create_subprocess_exec(str(path), *arguments, env=variables, **(usual | pipes))


async def ran(path: Path, home: Path, *arguments: str, stdin: bytes = b"") -> tuple[int | None, bytes, bytes]:
    process = await start(path, home, *arguments)
    out, err = await asyncio.wait_for(process.communicate(stdin), 60)
    return process.returncode, out, err


@pytest.mark.parametrize("path", KUBECTLS)
async def test_exec(path: Path, home: Path) -> None:
    assert await ran(path, home, "exec", "p", "--", "ls", "-l") == (0, b"ls -l\n", b"err\n")

    code, _, err = await ran(path, home, "exec", "p", "--", "exit", "3")
    assert (code, err) == (3, b"err\ncommand terminated with exit code 3\n")

    many = os.urandom(300_000)
    code, out, _ = await ran(path, home, "exec", "-i", "p", "--", "cat", stdin=many)
    assert (code, out) == (0, b"cat\n" + many)

    code, _, err = await ran(path, home, "exec", "p", "--", "refuse")
    assert (code, err.splitlines()[-1]) == (1, b"error: no such thing")


@pytest.mark.parametrize("path", KUBECTLS)
async def test_a_terminal_tells_its_sizes(path: Path, home: Path) -> None:
    ours, theirs = pty.openpty()
    with os.fdopen(ours, "rb", buffering=0) as screen, os.fdopen(theirs, "rb", buffering=0):
        termios.tcsetwinsize(ours, (24, 80))
        process = await start(path, home, "exec", "-it", "p", "--", "sh", stdin=theirs, stdout=theirs)
        shown = await until(screen, "}")
        termios.tcsetwinsize(ours, (30, 90))
        process.send_signal(signal.SIGWINCH)
        shown += await until(screen, "}")
        os.write(ours, b"exit\n")
        shown += await until(screen, "exit")
        process.terminate()
        await asyncio.wait_for(process.wait(), 30)
    assert '{"Width":80,"Height":24}' in shown
    assert '{"Width":90,"Height":30}' in shown


async def until(screen: BinaryIO, end: str) -> str:
    async def read() -> str:
        text = ""
        while end not in text:
            text += (await asyncio.to_thread(os.read, screen.fileno(), 1000)).decode()
        return text

    return await asyncio.wait_for(read(), 30)


@pytest.mark.parametrize("path", KUBECTLS)
async def test_port_forward(path: Path, home: Path) -> None:
    process = await start(path, home, "port-forward", "pod/p", ":80", ":8080")
    assert process.stdout
    try:
        ports: dict[int, int] = {}
        while len(ports) < 2:
            line = (await asyncio.wait_for(process.stdout.readline(), 30)).decode()
            _, _, _, local, _, remote = line.replace(":", " ").split()[:6] if "127.0.0.1" in line else [""] * 6
            ports |= {int(remote): int(local)} if remote else {}
        answers = await asyncio.gather(*(asked(ports[80], 100_000) for _ in range(5)), asked(ports[8080], 10))
        assert answers == [b"port 80 got 100004"] * 5 + [b"port 8080 got 14"]
    finally:
        process.kill()
        await process.communicate()


async def asked(port: int, size: int) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"x" * size + b"\r\n\r\n")
    answer = await asyncio.wait_for(reader.read(), 30)
    writer.close()
    return answer.partition(b"\r\n\r\n")[2]

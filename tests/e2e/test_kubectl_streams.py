"""`kubectl exec`, `attach`, `run -i`, `cp` and `port-forward`, into pods that are processes."""

import hashlib
import os
import pty
import re
import select
import signal
import socket
import subprocess
import termios
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import pytest

from tests.e2e import processes
from tests.e2e.cluster import free_port, until
from tests.e2e.kubectl import SECONDS, TIMEOUT, Kubectl, everywhere, following, on_every_version
from tests.e2e.manifests import a_container

LARGE = os.urandom(5_000_000)


class Ran(NamedTuple):
    """How a command ended."""

    code: int
    out: bytes
    err: str


def a_pod(name: str, *containers: object, **spec: object) -> dict[str, object]:
    usual = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": list(containers)}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": usual | spec}


def started(kubectl: Kubectl, *arguments: str, **pipes: int) -> subprocess.Popen[bytes]:
    """Like `Kubectl.start`, for bytes and apart streams."""
    variables = {"HOME": str(kubectl.home), "PATH": os.environ["PATH"], "KUBECONFIG": str(kubectl.cluster.kubeconfig)}
    usual = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    command = [str(kubectl.path), "--namespace", kubectl.namespace, *arguments]
    return subprocess.Popen(command, env={**variables, "GOGC": "off"}, **(usual | pipes))


def ran(kubectl: Kubectl, *arguments: str, stdin: bytes = b"") -> Ran:
    with started(kubectl, *arguments) as process:
        try:
            out, err = process.communicate(stdin, timeout=SECONDS)
        finally:
            process.kill()
    return Ran(process.returncode, out, err.decode())


@pytest.fixture(scope="module", autouse=True)
def pods(kubectls: list[Kubectl]) -> None:
    """One that sleeps, one with two containers, of which one can be talked to."""

    def create(kubectl: Kubectl) -> None:
        sleeper = a_container("main", "echo up; exec sleep 100000") | {"env": [{"name": "WHO", "value": "a  b"}]}
        echo = a_container("echo", "while read line; do echo got $line; echo aside >&2; done; echo over")
        kubectl.send("create", a_pod("sleeper", sleeper), a_pod("two", echo | {"stdin": True}, sleeper))
        kubectl("wait", "--for=condition=Ready", "pod/sleeper", "pod/two", TIMEOUT)

    everywhere(kubectls, create)


@on_every_version
def test_a_command_gives_its_output_and_its_exit_code(kubectl: Kubectl) -> None:
    script = 'echo "$WHO"; echo aside >&2; exit 3'
    code, out, err = ran(kubectl, "exec", "sleeper", "--", "sh", "-c", script)
    assert (code, out, err) == (3, b"a  b\n", "aside\ncommand terminated with exit code 3\n")
    assert ran(kubectl, "exec", "sleeper", "--", "true") == (0, b"", "")
    assert ran(kubectl, "exec", "sleeper", "--", "sh", "-c", "kill -9 $$").code == 137


@on_every_version
def test_input_and_output_arrive_whole(kubectl: Kubectl) -> None:
    assert ran(kubectl, "exec", "-i", "sleeper", "--", "cat", stdin=LARGE) == (0, LARGE, "")
    code, out, _ = ran(kubectl, "exec", "-i", "sleeper", "--", "sha256sum", stdin=LARGE)
    assert (code, out.split()[0].decode()) == (0, hashlib.sha256(LARGE).hexdigest())
    # A command need not read what it is sent.
    assert ran(kubectl, "exec", "-i", "sleeper", "--", "echo", "hi", stdin=LARGE)[:2] == (0, b"hi\n")


@on_every_version
def test_what_cannot_be_executed_says_why(kubectl: Kubectl) -> None:
    code, _, err = ran(kubectl, "exec", "sleeper", "--", "nix")
    assert code == 1
    assert err.endswith('error executing command in container: exec: "nix": executable file not found in $PATH\n')
    assert 'pods "nix" not found' in ran(kubectl, "exec", "nix", "--", "ls").err
    assert "container nix is not valid for pod two" in ran(kubectl, "exec", "two", "-c", "nix", "--", "ls").err
    assert "Defaulted container" in ran(kubectl, "exec", "two", "--", "true").err
    assert ran(kubectl, "exec", "two", "-c", "main", "--", "sh", "-c", "echo $WHO") == (0, b"a b\n", "")


@on_every_version
def test_a_container_that_has_ended_is_not_found(kubectl: Kubectl) -> None:
    kubectl.send("create", a_pod("half", a_container("short", "true"), a_container("main", "exec sleep 100000")))
    until(lambda: "terminated" in status_of(kubectl, "half", "short"), SECONDS, "it has ended")
    code, _, err = ran(kubectl, "exec", "half", "-c", "short", "--", "ls")
    said = err.splitlines()[-1].removeprefix("error: ").removeprefix("Internal error occurred: ")
    assert (code, said) == (1, 'unable to upgrade connection: container not found ("short")')


def status_of(kubectl: Kubectl, pod: str, container: str) -> dict[str, object]:
    statuses = kubectl.stored("pod", pod)["status"].get("containerStatuses", [])
    return next((each["state"] for each in statuses if each["name"] == container), {})


@contextmanager
def on_a_terminal(kubectl: Kubectl, *arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], "Screen"]]:
    """A command that has a terminal of 80 by 24, and what stands on it."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(ours, (24, 80))
    try:
        process = started(kubectl, *arguments, stdin=theirs, stdout=theirs, stderr=theirs)
        try:
            yield process, Screen(ours)
        finally:
            process.kill()
            process.wait(SECONDS)
    finally:
        os.close(ours)
        os.close(theirs)


class Screen:
    def __init__(self, fd: int) -> None:
        self.fd = fd

    def type(self, text: str) -> None:
        os.write(self.fd, text.encode())

    def until(self, pattern: str) -> str:
        """What stands there when the pattern first does."""
        ends, text = time.monotonic() + SECONDS, ""
        while not re.search(pattern, text):
            readable, _, _ = select.select([self.fd], [], [], ends - time.monotonic())
            assert readable, f"no {pattern!r} in {text!r}"
            text += os.read(self.fd, 65536).decode()
        return text


@on_every_version
def test_a_shell_on_a_terminal(kubectl: Kubectl) -> None:
    with on_a_terminal(kubectl, "exec", "-it", "sleeper", "--", "sh") as (process, screen):
        screen.until("[#$] ")
        # The size comes on a channel of its own, perhaps after what is typed.
        screen.type("tty; until stty size | grep '24 80'; do :; done; echo $TERM\n")
        screen.until(r"/dev/pts/\d+\s+24 80\s+xterm\s")
        termios.tcsetwinsize(screen.fd, (30, 90))
        process.send_signal(signal.SIGWINCH)
        screen.type("sh -c 'echo be''gun; exec sleep 100000'\n")
        screen.until("begun")  # what is typed is shown, too, but with quotes in it
        screen.type("\x03")  # the terminal's own: the sleep ends, the shell does not
        screen.until("[#$] ")
        screen.type("until stty size | grep '30 90'; do :; done; exit 7\n")  # it ends once the new size is there
        screen.until(r"30 90\s")
        assert process.wait(SECONDS) == 7


@on_every_version
def test_who_attaches_sees_what_comes_and_can_answer(kubectl: Kubectl) -> None:
    with started(kubectl, "attach", "-i", "two", "-c", "echo") as process:
        assert process.stdin
        assert process.stdout
        process.stdin.write(b"one\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"got one\n"
        process.kill()
    # Its input stays open for the next who comes.
    with started(kubectl, "attach", "-i", "two", "-c", "echo") as process:
        assert process.stdin
        assert process.stdout
        process.stdin.write(b"two\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"got two\n"
        process.kill()
    # What is attached to is told sooner than what is logged.
    with started(kubectl, "logs", "--follow", "two", "-c", "echo") as process:
        assert process.stdout
        assert sorted(process.stdout.readline() for _ in range(4)) == [
            b"aside\n",
            b"aside\n",
            b"got one\n",
            b"got two\n",
        ]
        process.kill()


@on_every_version
def test_run_talks_to_its_pod_and_removes_it(kubectl: Kubectl) -> None:
    given = ("--image=busybox", "--restart=Never", "--quiet", "--command", "--")
    script = "read line; echo got $line; cat >/dev/null; exit 5"
    code, out, _ = ran(kubectl, "run", "talk", "--rm", "-i", *given, "sh", "-c", script, stdin=b"one\n")
    assert (code, out) == (5, b"got one\n")
    assert "NotFound" in kubectl("get", "pod", "talk", code=1)
    with on_a_terminal(kubectl, "run", "shell", "--rm", "-it", *given, "sh") as (process, screen):
        screen.type("\n")
        screen.until("[#$] ")
        screen.type("tty; stty size; exit\n")
        screen.until(r"/dev/pts/\d+\s+24 80")
        assert process.wait(SECONDS) == 0
    assert "NotFound" in kubectl("get", "pod", "shell", code=1)


@on_every_version
def test_files_are_copied_both_ways(kubectl: Kubectl) -> None:
    folder = kubectl.home / "copied"
    folder.mkdir()
    (folder / "large").write_bytes(LARGE)
    (folder / "small").write_text("small\n")
    target = kubectl.home / "inside"
    kubectl("cp", str(folder), f"sleeper:{target}")
    assert (target / "large").read_bytes() == LARGE
    back = kubectl.home / "back"
    assert kubectl("cp", f"sleeper:{target}", str(back)).startswith("tar: ")
    assert ((back / "large").read_bytes(), (back / "small").read_text()) == (LARGE, "small\n")


SERVER = """
import socketserver
class Echo(socketserver.StreamRequestHandler):
    def handle(self):
        while data := self.request.recv(65536):
            self.request.sendall(data)
class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True
with Server(("127.0.0.1", PORT), Echo) as server:
    print("listening", flush=True)
    server.serve_forever()
"""


@on_every_version
def test_connections_to_a_port(kubectl: Kubectl) -> None:
    port, silent = free_port(), free_port()
    file = kubectl.file("echo.py", SERVER.replace("PORT", str(port)))
    kubectl.send("create", a_pod("served", a_container("main", f"exec python3 {file}")))
    until(lambda: "listening" in logged(kubectl, "served"), SECONDS, "it listens")
    with forwarding(kubectl, "served", port, silent) as (ports, line):
        answers: list[bytes] = []
        asking = [threading.Thread(target=lambda: answers.append(echoed(ports[port], LARGE))) for _ in range(4)]
        for each in asking:
            each.start()
        for each in asking:
            each.join(SECONDS)
        assert answers == [LARGE] * 4
        assert echoed(ports[silent], b"") == b""  # nobody listens there: kubectl says so, and ends
        line("connect.*refused|Connect call failed")


def logged(kubectl: Kubectl, pod: str) -> str:
    path = f"/api/v1/namespaces/{kubectl.namespace}/pods/{pod}/log"
    return kubectl.api.get(path).text


@contextmanager
def forwarding(kubectl: Kubectl, pod: str, *ports: int) -> Iterator[tuple[dict[int, int], Callable[[str], str]]]:
    """By which ports of this machine those of the pod are reached, and what kubectl says next."""
    process = kubectl.start("port-forward", f"pod/{pod}", *(f":{port}" for port in ports))
    with following(process) as line:
        found = [re.search(r"127.0.0.1:(\d+) -> (\d+)", line(r"from 127.0.0.1")) for _ in ports]
        yield {int(each[2]): int(each[1]) for each in found if each}, line


def echoed(port: int, data: bytes) -> bytes:
    """What comes back of it."""
    with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as connection:
        sending = threading.Thread(target=lambda: (connection.sendall(data), connection.shutdown(socket.SHUT_WR)))
        sending.start()
        answer = b""
        while len(answer) < max(len(data), 1) and (more := connection.recv(65536)):
            answer += more
        sending.join(SECONDS)
    return answer


@on_every_version
def test_a_command_ends_with_its_client(kubectl: Kubectl) -> None:
    mark = f"{free_port()}.25"
    with started(kubectl, "exec", "-i", "sleeper", "--", "sleep", mark) as process:
        until(lambda: runs(mark), SECONDS, "it runs")
        process.kill()
    until(lambda: not runs(mark), SECONDS, "it is killed")


def runs(mark: str) -> bool:
    return any(each.command == f"sleep {mark}" for each in processes.living())


@on_every_version
def test_a_command_ends_with_its_container(kubectl: Kubectl) -> None:
    kubectl.send("create", a_pod("brief", a_container("main", "exec sleep 100000")))
    kubectl("wait", "--for=condition=Ready", "pod/brief", TIMEOUT)
    mark = f"{free_port()}.5"
    with started(kubectl, "exec", "brief", "--", "sleep", mark) as process:
        until(lambda: runs(mark), SECONDS, "it runs")
        kubectl("delete", "pod", "brief")
        assert process.wait(SECONDS) == 137
    assert not runs(mark)


@on_every_version
def test_a_pod_without_a_node_can_be_told_nothing(kubectl: Kubectl) -> None:
    kubectl.send("create", a_pod("nowhere", a_container("main", "true"), nodeSelector={"nix": "nix"}))
    path = f"/api/v1/namespaces/{kubectl.namespace}/pods/nowhere"
    for part in ("exec?command=ls&stdout=1", "attach?stdout=1", "portforward?ports=1"):
        refused = kubectl.api.get(f"{path}/{part}")
        assert (refused.status_code, refused.json()["message"]) == (400, "pod nowhere does not have a host assigned")

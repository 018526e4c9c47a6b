"""The command `jobplane` for tests that call it by the dozen: a process that has loaded it already forks for each call.

To load it takes half a second of a processor, to fork a fiftieth. What is loaded beforehand are libraries and what every
command loads; modules of single commands are loaded by each call, as ever.

`program` starts that process, once for each process of the tests, and returns the program that calls it. It serves a socket
until its standard input ends, as it does with the process of the tests.
"""

import atexit
import gc
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).parents[2]
# It hands on its arguments, folder, environment and the three streams, and ends with the code that it gets.
SCRIPT = """#!{python} -IS
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect({path!r})
    call = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
    socket.send_fds(server, [len(call).to_bytes(8, "big")], [0, 1, 2])
    server.sendall(call)
    code = server.recv(1)
sys.exit(code[0] if code else "the process that was to run the command is gone")
"""


@cache
def program() -> Path:
    """Return a program `jobplane`, good for as long as this process lives."""
    folder = Path(tempfile.mkdtemp(prefix="jobplane-program-"))
    path = str(folder / "jobplane.sock")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JOBPLANE_")}
    # Not with -m, or the name of this module would be the program's.
    server = subprocess.Popen(
        [sys.executable, __file__, path],
        env=environment | {"PYTHONPATH": str(ROOT)},
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    atexit.register(_end, server, folder)
    assert server.stdout
    assert server.stdout.readline() == b"ready\n"
    made = folder / "jobplane"
    made.write_text(SCRIPT.format(python=sys.executable, path=path))
    made.chmod(0o755)
    return made


def _end(server: "subprocess.Popen[bytes]", folder: Path) -> None:
    server.communicate()
    shutil.rmtree(folder)


def main() -> None:
    """Serve on the socket that the command line names."""
    import httpcore  # noqa: F401
    import httpx  # noqa: F401
    import yaml  # noqa: F401

    import app.client.api
    import app.kinds.batch.job
    import app.kinds.core.node
    import app.main.cli  # noqa: F401

    gc.freeze()  # to look for cycles would copy each page of what is loaded
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks for those that answer
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(sys.argv[1])
        listening.listen(64)
        print("ready", flush=True)
        while True:
            readable, _, _ = select.select([listening, sys.stdin], [], [])
            if sys.stdin in readable:
                return
            call, _ = listening.accept()
            if os.fork() == 0:
                listening.close()
                break
            call.close()
    _answer(call)


def _answer(call: socket.socket) -> None:
    """Run the command in a child, and tell its exit code."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    length, streams, _, _ = socket.recv_fds(call, 8, 3)
    with call.makefile("rb") as file:
        asked = json.loads(file.read(int.from_bytes(length, "big")))
    child = os.fork()
    if child == 0:
        call.close()
        _run(streams, *asked)
    for each in streams:
        os.close(each)
    _, status = os.waitpid(child, 0)
    call.sendall(bytes([os.waitstatus_to_exitcode(status) & 0xFF]))


def _run(streams: list[int], arguments: list[str], folder: str, environment: dict[str, Any]) -> NoReturn:
    for number, each in enumerate(streams):
        os.dup2(each, number)
        os.close(each)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["jobplane", *arguments]
    from app.main.cli import main as run_command

    code = 0
    try:
        run_command()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    sys.stdout.flush()
    os._exit(code)


if __name__ == "__main__":
    main()

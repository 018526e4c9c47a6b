"""Programs that cannot succeed end at once, with one line that says what to do, and are not started again."""

import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.e2e import preloaded
from tests.e2e.cluster import Cluster, environment, free_port, until
from tests.e2e.machines import command, jobplane
from tests.e2e.migrated_postgres import copy_into
from tests.needs import lacking

TOKEN = "x7k2pq." + "a" * 32
NOWHERE = "https://127.0.0.1:9"
DATABASE = "postgresql://ada:secret@127.0.0.1:9/x"
SECONDS = 120


class Ended(NamedTuple):
    code: int
    lines: list[str]  # without those of the log


def ran(*arguments: str, cwd: Path | None = None, **variables: str) -> Ended:
    """A program that is expected to end by itself. `{}` in its arguments is a port that is free."""
    given = [each.format(free_port()) if each == "{}" else each for each in arguments]
    call = command(*given) if "up" in given else [str(preloaded.program()), *given]
    done = subprocess.run(
        call,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        cwd=cwd,
        env=environment(**variables),
        check=False,
    )
    assert "Traceback" not in done.stderr
    assert "secret" not in done.stderr
    logged = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (INFO|WARNING|ERROR) ")
    return Ended(done.returncode, [line for line in done.stderr.splitlines() if not logged.match(line)])


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        pytest.param(
            ("agent", "--server", NOWHERE),
            78,
            "this machine has not joined: run `jobplane token create`",
            id="not joined",
        ),
        pytest.param(("agent", "--server", "10.77.0.1:7443"), 2, "is not a URL such as https://", id="no scheme"),
        pytest.param(
            ("agent", "--server", NOWHERE, "--join-token", "x7k2"), 78, "--join-token is malformed", id="join token"
        ),
        pytest.param(
            ("agent", "--server", NOWHERE, "--join-token", TOKEN, "--ca-hash", "sha256:12"),
            78,
            "--ca-hash is malformed",
            id="hash",
        ),
        pytest.param(
            ("agent", "--server", NOWHERE, "--token-file", "binary"), 78, "/binary is not a text file", id="token file"
        ),
        pytest.param(("migrate", "--database-url", "mysql://u:secret@h/x"), 2, "not a Postgres URL", id="MySQL"),
        pytest.param(
            ("migrate", "--database-url", "postgresql://u:se/cret@h:x/x"),
            78,
            "with special characters as %XX",
            id="URL",
        ),
        pytest.param(("agent", "--server", NOWHERE, "--token-file", "none"), 78, "/none does not exist", id="no file"),
        pytest.param(
            ("token", "list", "--server", NOWHERE, "--ca-file", "binary"),
            1,
            "/binary: holds no certificate",
            id="authority",
        ),
        pytest.param(
            ("token", "list", "--server", NOWHERE, "--ca-file", "none"), 1, "/none does not exist", id="no authority"
        ),
        pytest.param(("migrate",), 78, "no database: pass --database-url", id="no database"),
        pytest.param(
            ("api", "--host", "192.0.2.1", "--database-url", DATABASE),
            78,
            "is not an address of this machine",
            id="host",
        ),
        pytest.param(("up", "--port", "{}", "--data-dir", "binary/x"), 78, "cannot use ", id="folder"),
        pytest.param(("up", "--port", "{}", "--runtime", "cri"), 78, "pip install 'jobplane[cri]'", id="missing extra"),
        pytest.param(("demo", "nothing.yaml"), 78, "nothing.yaml does not exist", id="manifest"),
        pytest.param(("demo", "binary"), 78, "binary is not a text file", id="no manifest"),
        pytest.param(
            ("logs", "x", "--server", NOWHERE), 1, f"cannot reach the API: {NOWHERE}: [Errno 111]", id="nobody answers"
        ),
        pytest.param(
            ("token", "--database-url", DATABASE),
            1,
            "cannot use the database at 127.0.0.1:9: [Errno 111]",
            id="token",
        ),
    ],
)
def test_what_cannot_succeed_ends_with_one_line(
    tmp_path: Path, arguments: tuple[str, ...], code: int, line: str
) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    missing = tmp_path / "without"  # the extra: its library is there, and cannot be imported
    missing.mkdir()
    (missing / "h2.py").write_text("raise ModuleNotFoundError(\"No module named 'h2'\")\n")

    if "up" in arguments:
        copy_into(tmp_path / "data")
    found = ran(*arguments, cwd=tmp_path, JOBPLANE_DATA_DIR=str(tmp_path / "data"), PYTHONPATH=str(missing))

    assert found.code == code, found
    assert len(found.lines) == 1, found
    assert line in found.lines[0]


@pytest.mark.parametrize("program", [("up",), ("api", "--database-url", DATABASE)], ids=lambda given: given[0])
def test_a_port_that_is_in_use_ends_the_program(tmp_path: Path, program: tuple[str, ...]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        copy_into(tmp_path / "data")
        found = ran(*program, "--port", str(port), "--data-dir", str(tmp_path / "data"))

    assert found == (
        78, [f"port {port} of 127.0.0.1 is in use: pass another --port, or stop the program that listens there"]
    )  # fmt: skip


def test_a_second_up_on_a_folder_says_who_serves_it(cluster: Cluster) -> None:
    before = cluster.kubeconfig.read_bytes()
    found = ran("up", "--port", "{}", "--data-dir", str(cluster.folder))

    assert found.code == 1
    assert len(found.lines) == 1
    assert f"`jobplane up` (process {cluster.pid}) already serves {cluster.folder}" in found.lines[0]
    assert cluster.kubeconfig.read_bytes() == before


@pytest.mark.parametrize(
    ("scheme", "expected"),
    [
        ("http", "speaks TLS: pass a --server with https://"),
        ("https", "pass the --ca-hash that came with the join token"),
    ],
)
def test_an_agent_that_cannot_trust_or_speak_to_the_api_ends(
    cluster: Cluster, tmp_path: Path, scheme: str, expected: str
) -> None:
    server = f"{scheme}://127.0.0.1:{cluster.port}"
    for how in (("--join-token", TOKEN), ("--token-file", str(cluster.folder / "agent.token"))):
        found = ran("agent", "--server", server, *how, "--data-dir", str(tmp_path / how[0]))
        assert found.code == 78, found
        assert len(found.lines) == 1
        assert expected in found.lines[0]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        pytest.param(
            ("migrate", "--database-url", DATABASE),
            'waiting for the database  address=127.0.0.1:9 error="[Errno 111]',
            id="database",
        ),
        pytest.param(
            ("agent", "--server", NOWHERE, "--join-token", TOKEN),
            f'cannot join yet; retrying  node={os.uname().nodename.lower()} error="{NOWHERE}: [Errno 111]',
            id="API",
        ),
    ],
)
def test_what_may_come_is_waited_for_with_its_address_until_ctrl_c(
    tmp_path: Path, arguments: tuple[str, ...], expected: str
) -> None:
    log = tmp_path / "log"
    heeding = ("env", "--default-signal=INT")  # which what a script starts in the background ignores, and its children
    with log.open("wb") as file:
        running = subprocess.Popen(
            [*heeding, *command(*arguments)],
            stderr=file,
            env=environment(JOBPLANE_DATA_DIR=str(tmp_path / "data")),
            start_new_session=True,
        )
    try:
        until(lambda: expected in log.read_text(), SECONDS, "it says what it waits for")
        os.kill(running.pid, signal.SIGINT)
        assert running.wait(SECONDS) in (0, 130)
    finally:
        running.kill()
        running.wait()
    assert "Traceback" not in log.read_text()
    assert "secret" not in log.read_text()


def test_a_reader_that_has_seen_enough_is_no_error(cluster: Cluster) -> None:
    listing = command("token", "list", "--data-dir", str(cluster.folder))
    done = subprocess.run(
        ["sh", "-c", f"{shlex.join(listing)} | true"],
        capture_output=True,
        text=True,
        env=environment(),
        timeout=SECONDS,
        check=False,
    )
    assert done.stderr == ""


def test_a_first_start_warns_of_nothing(cluster: Cluster) -> None:
    """Except of containers' limits, where the machine lets nobody make cgroups."""
    first = cluster.log.read_text().partition("API is serving")[0]
    warned = [line for line in first.splitlines() if " WARNING " in line]
    assert [line for line in warned if "limits of containers are not enforced" not in line] == []


def test_volumes_work_in_a_data_folder_that_is_given_relative_to_the_working_directory(
    cluster: Cluster, tmp_path: Path
) -> None:
    """As docs/join.md writes it. A pod's volumes are mounted by a process with another working directory."""
    if shutil.which("bwrap") is None:
        lacking("the program bwrap is not there")
    line = shlex.split(jobplane("token", "create", "--data-dir", str(cluster.folder)))
    given = [*line[1:], "--data-dir", "./data", "--node-name", "relative"]
    with (tmp_path / "log").open("wb") as log:
        running = subprocess.Popen(command(*given), cwd=tmp_path, stdout=log, stderr=log, env=environment())
    try:
        with cluster.client() as client:
            pods = "/api/v1/namespaces/default/pods"
            main = {"name": "main", "image": "busybox", "command": ["sh", "-c", "echo kept > /v/x && cat /v/x"]}
            spec = {
                "restartPolicy": "Never",
                "nodeName": "relative",
                "containers": [{**main, "volumeMounts": [{"name": "v", "mountPath": "/v"}]}],
                "volumes": [{"name": "v", "emptyDir": {}}],
            }
            client.post(pods, json={"metadata": {"name": "mounts"}, "spec": spec}).raise_for_status()

            def phase() -> str:
                return str(client.get(f"{pods}/mounts").json()["status"]["phase"])

            until(lambda: phase() in ("Succeeded", "Failed"), SECONDS, "it has run")
            assert (phase(), client.get(f"{pods}/mounts/log").text) == ("Succeeded", "kept\n")
            client.delete(f"{pods}/mounts?gracePeriodSeconds=0").raise_for_status()
            until(lambda: client.get(f"{pods}/mounts").status_code == 404, SECONDS, "it is gone")
            running.send_signal(signal.SIGTERM)
            running.wait(SECONDS)
            client.delete("/api/v1/nodes/relative").raise_for_status()
    finally:
        running.kill()
        running.wait()

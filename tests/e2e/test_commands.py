"""Commands for people without kubectl, on a real `jobplane up`; and every command of docs/commands.md."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.cluster import Cluster, environment, until

PAGE = Path(__file__).parents[2] / "docs" / "commands.md"
SECONDS = 90


class Shell:
    """Runs `jobplane` as a user would, in a folder and a namespace of its own, without kubectl on the PATH."""

    def __init__(self, cluster: Cluster, home: Path, namespace: str) -> None:
        self.cluster, self.namespace, self.home = cluster, namespace, home
        tools = home / "bin"
        tools.mkdir()
        (tools / "jobplane").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m app.main.cli "$@"\n')
        (tools / "jobplane").chmod(0o755)
        config = home / ".kube" / "config"
        config.parent.mkdir()
        config.write_text(cluster.kubeconfig.read_text().replace("namespace: default", f"namespace: {namespace}"))
        path = os.pathsep.join([str(tools), "/usr/bin", "/bin"])
        root = str(Path(__file__).parents[2])
        self.env = environment(HOME=str(home), PATH=path, PYTHONPATH=root) | {"KUBECONFIG": ""}

    def run(self, line: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["sh", "-c", line],
            check=False,
            input=stdin,
            capture_output=True,
            text=True,
            env=self.env,
            cwd=self.home,
            timeout=SECONDS,
        )

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        command = ["env", "--default-signal=INT", sys.executable, "-m", "app.main.cli", *arguments]
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.env, cwd=self.home
        )

    def job(self, name: str) -> dict[str, object] | None:
        with self.cluster.client() as client:
            answer = client.get(f"/apis/batch/v1/namespaces/{self.namespace}/jobs/{name}")
        return answer.json() if answer.is_success else None


@pytest.fixture
def shell(cluster: Cluster, tmp_path: Path) -> Iterator[Shell]:
    namespace = re.sub(r"[^a-z0-9]+", "-", tmp_path.name.lower()).strip("-")[:50]
    with cluster.client() as client:
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
        client.post("/api/v1/namespaces", json=body).raise_for_status()
        yield Shell(cluster, tmp_path, namespace)
        client.delete(f"/api/v1/namespaces/{namespace}").raise_for_status()


def test_run_prints_what_the_job_prints_and_ends_with_its_code(shell: Shell) -> None:
    done = shell.run("jobplane run --name x --env WORD=hello -- sh -c 'exec 2>&1; echo $WORD; echo there >&2; exit 42'")

    assert (done.returncode, done.stdout) == (42, "hello\nthere\n")
    assert re.fullmatch(r"job x failed after \d+s: exit code 42 in attempt 1 of 1\n", done.stderr)
    # What others see is a plain Job: nothing of ours is in it but the command.
    job = shell.job("x")
    assert job is not None
    assert job["spec"]["template"]["spec"]["containers"][0]["command"][0] == "sh"  # type: ignore[index]


def test_run_of_a_complete_job_prints_nothing_but_its_output(shell: Shell) -> None:
    done = shell.run("jobplane run -- printf 'no newline'")

    assert (done.returncode, done.stdout, done.stderr) == (0, "no newline", "")


def test_an_array_prints_the_index_before_each_line_and_runs_each_once(shell: Shell) -> None:
    done = shell.run("jobplane run --array 0-5%2 -- sh -c 'echo a $JOB_COMPLETION_INDEX; echo b'")

    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == sorted(f"[{n}] {word}" for n in range(6) for word in (f"a {n}", "b"))


def test_retries_are_counted_and_the_last_failure_counts(shell: Shell) -> None:
    done = shell.run("jobplane run --name again --retries 1 -- sh -c 'exit 7'")

    assert done.returncode == 7
    assert "exit code 7 in attempt 2 of 2" in done.stderr


def test_a_job_that_cannot_start_says_why_and_is_cancelled(shell: Shell) -> None:
    assert shell.run("jobplane run --detach --name big --cpus 900 -- true").stdout == "big\n"

    words = "pending: waits for 900 free CPUs: 0/1 nodes are available: 1 Insufficient cpu"
    until(lambda: words in shell.run("jobplane list").stdout, SECONDS, words)
    assert words in shell.run("jobplane get big").stdout
    assert shell.run("jobplane cancel big --wait").stdout == "job big is cancelled\n"
    assert shell.job("big") is None


@pytest.mark.parametrize(("rule", "words", "stays"), [("detach", "goes on", True), ("cancel", "is cancelled", False)])
def test_ctrl_c_detaches_or_cancels(shell: Shell, rule: str, words: str, stays: bool) -> None:
    child = shell.start("run", "--name", "long", "--on-interrupt", rule, "--", "sh", "-c", "echo begun; sleep 600")
    assert child.stdout is not None
    assert child.stdout.readline() == "begun\n"

    child.send_signal(signal.SIGINT)

    _, said = child.communicate(timeout=SECONDS)
    assert child.returncode == 130
    assert said.startswith(f"job long {words}")
    assert len(said.splitlines()) == 1
    if stays:
        assert shell.job("long") is not None
    else:
        until(lambda: shell.job("long") is None, SECONDS, "the Job is gone")


def test_a_job_that_is_deleted_while_it_is_waited_for_ends_the_command(shell: Shell) -> None:
    child = shell.start("run", "--name", "gone", "--", "sh", "-c", "echo begun; exec sleep 600")
    assert child.stdout is not None
    assert child.stdout.readline() == "begun\n"

    assert shell.run("jobplane cancel gone").returncode == 0

    assert child.communicate(timeout=SECONDS)[1] == "job gone was deleted before it ended\n"
    assert child.returncode == 1


def test_logs_are_followed_and_are_there_after_the_job(shell: Shell) -> None:
    shell.run("jobplane run --detach --name slow -- sh -c 'for n in 1 2 3; do echo $n; sleep 0.3; done'")
    assert shell.run("jobplane logs -f slow").stdout == "1\n2\n3\n"

    assert shell.run("jobplane cancel slow --wait").returncode == 0
    assert shell.run("jobplane logs slow").stdout == "1\n2\n3\n"
    assert shell.run("jobplane logs -f slow --tail 1").stdout == "3\n"


def test_lists_as_data_are_what_the_api_says(shell: Shell) -> None:
    shell.run("jobplane run --name one -- true")

    listed = json.loads(shell.run("jobplane list -o json").stdout)
    assert [item["metadata"]["name"] for item in listed["items"]] == ["one"]
    assert shell.run("jobplane list -o name").stdout == "one\n"
    assert json.loads(shell.run("jobplane get one -o json").stdout) == shell.job("one")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("run", "nothing to run: jobplane run IMAGE, or jobplane run -- COMMAND"),
        ("get nope", 'jobs.batch "nope" not found: `jobplane list` lists the Jobs of a namespace'),
        ("list nopes", "nopes is no kind that this command knows: pass one of jobs"),
        ("run --queue q -- true", "has no queue q: it has none; pass -n NAMESPACE"),
        ("list --kubeconfig nope", "nope does not exist: start `jobplane up` in this folder, or pass --kubeconfig"),
        ("list --server https://127.0.0.1:1", "cannot reach the API: https://127.0.0.1:1"),
        ("cancel", "pass the names of Jobs, or -l LABELS"),
    ],
)
def test_an_error_is_one_line_that_says_what_to_do(shell: Shell, line: str, words: str) -> None:
    done = shell.run(f"jobplane {line}")

    assert (done.returncode, done.stdout) == (1, "")
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_every_command_of_the_page_works(shell: Shell) -> None:
    """In the order of the page. A line that ends with `# exits with N` does."""
    lines = [
        line for block in re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL) for line in block.splitlines()
    ]
    assert len(lines) > 15
    for line in lines:
        done = shell.run(line.replace("pod/NAME", f"pod/{_first_pod(shell)}") if "pod/NAME" in line else line)
        expected = re.search(r"# exits with (\d+)", line)
        assert done.returncode == (int(expected[1]) if expected else 0), f"{line}\n{done.stdout}\n{done.stderr}"
        assert done.stdout or expected, line


def _first_pod(shell: Shell) -> str:
    return shell.run("jobplane list pods -o name").stdout.split()[0]

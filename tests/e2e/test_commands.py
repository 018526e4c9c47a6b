"""Commands for people without kubectl, on a real `jobplane up`; and every command of docs/commands.md."""

import fcntl
import json
import os
import re
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e import preloaded
from tests.e2e.cluster import Cluster, environment, until

PAGE = Path(__file__).parents[2] / "docs" / "commands.md"
SECONDS = 90
# What prints its one line on stderr, or what has nothing to show while nothing was measured or made.
MAY_BE_EMPTY = (
    "jobplane submit pi.yaml",
    "jobplane submit sweep.sh",
    "jobplane list cronjobs",
    "jobplane top",
    "jobplane history --result Failed",
)


class Shell:
    """Runs `jobplane` as a user would, in a folder and a namespace of its own, without kubectl on the PATH."""

    def __init__(self, cluster: Cluster, home: Path, namespace: str) -> None:
        self.cluster, self.namespace, self.home = cluster, namespace, home
        tools = home / "bin"
        tools.mkdir()
        (tools / "jobplane").symlink_to(preloaded.program())
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


def test_on_a_terminal_a_line_of_progress_says_why_it_waits_and_fits(shell: Shell) -> None:
    controller, terminal = os.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 40, 0, 0))
    command = [
        "env",
        "--default-signal=INT",
        sys.executable,
        "-m",
        "app.main.cli",
        "run",
        "--name",
        "big",
        "--cpus",
        "900",
    ]
    child = subprocess.Popen(
        [*command, "--", "true"], stdout=terminal, stderr=terminal, stdin=terminal, env=shell.env, cwd=shell.home
    )
    shown = b""
    while b"big: pending: waits for 900 free CPU" not in shown:
        shown += os.read(controller, 4096)

    child.send_signal(signal.SIGINT)

    assert child.wait(SECONDS) == 130
    lines = [line.decode() for line in re.split(rb"\r\x1b\[K", shown) if line.startswith(b"big: pending: waits")]
    assert lines[-1] == "big: pending: waits for 900 free CPUs:…"
    shell.run("jobplane cancel big --wait")


def test_a_job_whose_time_is_over_fails_with_1(shell: Shell) -> None:
    done = shell.run("jobplane run --timeout 1s -- sleep 600")

    assert done.returncode == 1
    assert "its time of 1s was over" in done.stderr


def test_a_log_is_taken_up_where_it_was_when_the_api_is_killed(tmp_path: Path) -> None:
    with Cluster(tmp_path / "data") as cluster:
        shell = Shell(cluster, tmp_path, "default")
        script = f"echo 0; until [ -e {tmp_path}/go ]; do sleep 0.1; done; seq 1 50"
        child = shell.start("run", "--", "sh", "-c", script)
        assert child.stdout is not None
        assert child.stdout.readline() == "0\n"

        os.kill(cluster.pid_of("api"), signal.SIGKILL)

        until(cluster.is_usable, SECONDS, "the API is there again")
        (tmp_path / "go").touch()
        said, complaint = child.communicate(timeout=SECONDS)
        assert (child.returncode, said.split()) == (0, [str(number) for number in range(1, 51)]), complaint


def test_a_job_that_is_deleted_while_it_is_waited_for_ends_the_command(shell: Shell) -> None:
    child = shell.start("run", "--name", "gone", "--", "sh", "-c", "echo begun; exec sleep 600")
    assert child.stdout is not None
    assert child.stdout.readline() == "begun\n"

    assert shell.run("jobplane cancel gone").returncode == 0

    assert child.communicate(timeout=SECONDS)[1] == "job gone was deleted before it ended\n"
    assert child.returncode == 1


def test_logs_of_an_array_begin_with_the_index_and_those_of_a_retry_are_the_newest(shell: Shell) -> None:
    shell.run("jobplane run --array 2 --name two -- sh -c 'echo at $JOB_COMPLETION_INDEX'")
    assert shell.run("jobplane logs two").stdout == "[0] at 0\n[1] at 1\n"
    assert shell.run("jobplane logs two --index 1").stdout == "at 1\n"

    tried = shell.home / "tried"
    shell.run(
        f"jobplane run --retries 1 --name once -- sh -c 'test -e {tried} && echo again && exit; echo first; touch {tried}; false'"
    )
    assert shell.run("jobplane logs once").stdout == "again\n"
    assert shell.run("jobplane logs once --previous").stdout == "first\n"


def test_logs_are_followed_and_are_there_after_the_job(shell: Shell) -> None:
    shell.run("jobplane run --detach --name slow -- sh -c 'for n in 1 2 3; do echo $n; sleep 0.3; done'")
    assert shell.run("jobplane logs -f slow").stdout == "1\n2\n3\n"

    assert shell.run("jobplane cancel slow --wait").returncode == 0
    assert shell.run("jobplane logs slow").stdout == "1\n2\n3\n"
    assert shell.run("jobplane logs -f slow --tail 1").stdout == "3\n"


def test_a_file_is_submitted_once_and_applied_again(shell: Shell) -> None:
    job = {"metadata": {"name": "x"}, "apiVersion": "batch/v1", "kind": "Job"}
    job["spec"] = {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}  # type: ignore[assignment]
    job["spec"]["suspend"] = True  # type: ignore[index]
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"a": "1"}}
    both = json.dumps({"apiVersion": "v1", "kind": "List", "items": [config, job]})

    assert shell.run("jobplane submit -", both).stderr == "configmap x is submitted\njob x is submitted\n"
    again = shell.run("jobplane submit -", both)
    assert (again.returncode, len(again.stderr.splitlines())) == (1, 1)
    assert 'configmaps "x" already exists: pass --apply to change it' in again.stderr
    assert shell.run("jobplane submit --apply -", both.replace('"1"', '"2"')).returncode == 0
    assert json.loads(shell.run("jobplane get configmap/x -o json").stdout)["data"] == {"a": "2"}


def test_a_script_runs_as_a_job_and_its_code_is_ours(shell: Shell) -> None:
    (shell.home / "train.sh").write_text("#!/bin/sh -e\necho trained\nfalse\necho never\n")

    done = shell.run("jobplane submit train.sh --wait")

    assert (done.returncode, done.stdout) == (1, "trained\n")


def test_a_script_for_slurm_runs_as_a_job(shell: Shell) -> None:
    lines = (
        "#!/bin/sh",
        "#SBATCH --job-name=sweep -a 0-2%2",
        "#SBATCH --mem=64M --time=5",
        "echo task $SLURM_ARRAY_TASK_ID",
    )
    (shell.home / "sweep.sh").write_text("\n".join(lines))

    done = shell.run("jobplane submit sweep.sh --wait")

    assert (done.returncode, sorted(done.stdout.splitlines())) == (0, [f"[{n}] task {n}" for n in range(3)]), (
        done.stderr
    )


def test_what_is_no_manifest_is_refused_in_one_line(shell: Shell) -> None:
    for text, words in (("a: [", "is not YAML"), ("just text", "is no object"), ("", "holds no object")):
        done = shell.run("jobplane submit -", text)
        assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (1, "", 1)
        assert words in done.stderr
    assert (
        "the API serves no Jo of batch/v1"
        in shell.run("jobplane submit -", "{apiVersion: batch/v1, kind: Jo, metadata: {}}").stderr
    )


def test_watch_ends_with_the_code_of_the_job(shell: Shell) -> None:
    shell.run("jobplane run --detach --name failing -- sh -c 'exit 5'")

    done = shell.run("jobplane watch failing")

    assert done.returncode == 5
    assert "job failing failed" in done.stderr


def test_watch_prints_each_change_of_any_job(shell: Shell) -> None:
    child = shell.start("watch")
    shell.run("jobplane run --name short -- true")
    assert child.stdout is not None
    for line in child.stdout:
        if "short: complete" in line:
            break
    child.send_signal(signal.SIGINT)
    assert child.communicate(timeout=SECONDS)[1] == ""
    assert child.returncode == 130


def test_a_job_that_is_gone_has_a_history(shell: Shell) -> None:
    shell.run("jobplane run --name x -- sh -c 'exit 6'")
    assert shell.run("jobplane cancel x --wait").returncode == 0

    until(lambda: "exit code 6" in shell.run("jobplane history").stdout, SECONDS, "the record is there")
    shown = shell.run("jobplane history x").stdout
    assert "failed: exit code 6" in shown
    assert "Deleted:" in shown
    assert shell.run("jobplane logs x").returncode in (0, 1)  # it printed nothing, so there may be no log
    uid = json.loads(shell.run("jobplane history x -o json").stdout)["metadata"]["uid"]
    assert shell.run(f"jobplane history {uid}").stdout.splitlines()[0] == shown.splitlines()[0]


def test_a_job_runs_again_with_edits_also_after_it_was_deleted(shell: Shell) -> None:
    shell.run("jobplane run --name x --env WORD=one -- sh -c 'echo $WORD; exit 2'")
    first = shell.job("x")
    assert first is not None
    assert shell.run("jobplane rerun x --name y").returncode == 2
    assert shell.run("jobplane cancel x --wait").returncode == 0

    done = shell.run("jobplane rerun x --name z --set env.WORD=two --set command='echo $WORD'")

    assert (done.returncode, done.stdout) == (0, "two\n"), done.stderr
    assert shell.job("z")["metadata"]["annotations"]["jobplane.dev/rerun-of"] == first["metadata"]["uid"]  # type: ignore[index]
    wrong = shell.run("jobplane rerun z --set colour=red")
    assert (wrong.returncode, len(wrong.stderr.splitlines())) == (1, 1)
    assert shell.run("jobplane rerun nope").stderr.startswith("no Job nope in namespace")


def test_a_job_starts_after_another(shell: Shell) -> None:
    shell.run("jobplane run --detach --name second --after first -- echo second")
    until(lambda: "pending: waits for Job first" in shell.run("jobplane list").stdout, SECONDS, "it waits")

    assert shell.run("jobplane run --name first -- echo first").stdout == "first\n"

    assert shell.run("jobplane logs -f second").stdout == "second\n"


def test_nodes_show_what_is_asked_of_them(shell: Shell) -> None:
    shell.run("jobplane run --detach --name small --cpus 100m --memory 32Mi -- sleep 600")
    until(lambda: "running" in shell.run("jobplane get small").stdout, SECONDS, "it runs")

    rows = shell.run("jobplane nodes").stdout.splitlines()

    assert rows[0].split() == ["NAME", "STATE", "CPUS", "MEMORY", "GPUS", "PODS"]
    assert float(rows[1].split()[2].partition("/")[0]) >= 0.1
    until(lambda: "small" in shell.run("jobplane top").stdout, SECONDS, "usage is measured")
    assert shell.run("jobplane top nodes").stdout.startswith("NODE")


def test_the_shell_completes_names_of_jobs(shell: Shell) -> None:
    shell.run("jobplane run --detach --name complete-me -- sleep 600")

    words = "_JOBPLANE_COMPLETE=complete_bash COMP_WORDS='jobplane get comp' COMP_CWORD=2 jobplane"
    found = shell.run(words)
    assert found.stdout.split() == ["complete-me"], found.stderr
    assert shell.run(f"KUBECONFIG=/nowhere {words}").stdout.strip() == ""


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
    (shell.home / "pi.yaml").write_text((PAGE.parents[1] / "examples" / "pi.yaml").read_text())
    (shell.home / "train.sh").write_text("#!/bin/sh\necho trained\n")
    (script,) = re.findall(r"```bash\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (shell.home / "sweep.sh").write_text(script)
    lines = [
        line for block in re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL) for line in block.splitlines()
    ]
    assert len(lines) > 15
    for line in lines:
        done = shell.run(line.replace("pod/NAME", f"pod/{_first_pod(shell)}") if "pod/NAME" in line else line)
        expected = re.search(r"# exits with (\d+)", line)
        assert done.returncode == (int(expected[1]) if expected else 0), f"{line}\n{done.stdout}\n{done.stderr}"
        assert done.stdout or expected or line.startswith(MAY_BE_EMPTY), line


def _first_pod(shell: Shell) -> str:
    return shell.run("jobplane list pods -o name").stdout.split()[0]

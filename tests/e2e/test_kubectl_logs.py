"""`kubectl logs` in all its forms."""

import re
import time
from typing import Any

import pytest

from tests.e2e.kubectl import SECONDS, TIMEOUT, Kubectl, everywhere, following, on_every_version
from tests.e2e.manifests import a_container, a_job

# From 1.28 on, kubectl says which container it took, and names the ordinary ones first.
DEFAULTED = re.compile(r'Defaulted container "main" out of: main, side, (init \(init\)|prepare \(init\))\n')
SPEAKERS = {
    "containers": [a_container("main", "echo one; echo two; echo three"), a_container("side", "echo aside")],
    "initContainers": [a_container("init", "echo first")],
}


@pytest.fixture(scope="module", autouse=True)
def spoken(kubectls: list[Kubectl]) -> None:
    """A Job whose three containers have said something, and one whose container is in its second life."""
    everywhere(kubectls, lambda each: each.run_to_its_end(a_job("speak", "", pod=SPEAKERS), _again(each)))


def _again(kubectl: Kubectl) -> dict[str, Any]:
    script = f"echo $((2 - $(ls {kubectl.home}/lived 2>/dev/null | wc -l))); [ -e {kubectl.home}/lived ] && exit 0; "
    return a_job("again", f"{script} touch {kubectl.home}/lived; exit 1", pod={"restartPolicy": "OnFailure"})


def _said(kubectl: Kubectl, *arguments: str) -> str:
    """Without the word on which container was taken."""
    return DEFAULTED.sub("", kubectl("logs", *arguments))


def _pod(kubectl: Kubectl, job: str = "speak") -> str:
    return kubectl.pods(job)[0]


@on_every_version
def test_a_job_speaks_through_its_first_container(kubectl: Kubectl) -> None:
    assert DEFAULTED.match(kubectl("logs", "job/speak"))
    assert _said(kubectl, "job/speak") == "one\ntwo\nthree\n"
    assert _said(kubectl, _pod(kubectl)) == "one\ntwo\nthree\n"


@on_every_version
def test_any_container_is_asked_by_its_name(kubectl: Kubectl) -> None:
    assert kubectl("logs", "job/speak", "-c", "side") == "aside\n"
    assert kubectl("logs", _pod(kubectl), "init") == "first\n"
    missing = kubectl("logs", "job/speak", "-c", "nix", code=1)
    assert missing == f"error: container nix is not valid for pod {_pod(kubectl)}\n"


@on_every_version
def test_all_containers_speak_in_any_order(kubectl: Kubectl) -> None:
    """Between containers, kubectl goes by the order of a Go map, which is none."""
    everything = ["aside", "first", "one", "three", "two"]
    assert sorted(kubectl("logs", "job/speak", "--all-containers").split()) == everything
    assert sorted(kubectl("logs", "-l", "job-name=speak", "--all-containers").split()) == everything
    prefixed = kubectl("logs", "job/speak", "--all-containers", "--prefix").splitlines()
    pod = _pod(kubectl)
    assert {f"[pod/{pod}/init] first", f"[pod/{pod}/main] two", f"[pod/{pod}/side] aside"} < set(prefixed)


@on_every_version
def test_selected_pods_show_their_last_lines(kubectl: Kubectl) -> None:
    assert _said(kubectl, "-l", "job-name=speak", "--tail=1") == "three\n"
    assert _said(kubectl, "-l", "job-name=speak", "--prefix", "--tail=1") == f"[pod/{_pod(kubectl)}/main] three\n"
    assert kubectl("logs", "-l", "job-name=nix") == kubectl.none()
    if kubectl.minor >= 31:
        assert kubectl("logs", "job/speak", "--all-pods", "-c", "side") == f"[pod/{_pod(kubectl)}/side] aside\n"


@on_every_version
def test_a_log_is_cut_by_lines_bytes_and_time(kubectl: Kubectl) -> None:
    assert _said(kubectl, "job/speak", "--tail=2") == "two\nthree\n"
    assert _said(kubectl, "job/speak", "--limit-bytes=5") == "one\nt"
    assert _said(kubectl, "job/speak", "--since=1h") == "one\ntwo\nthree\n"
    assert _said(kubectl, "job/speak", "--since-time=2020-01-01T00:00:00Z") == "one\ntwo\nthree\n"
    assert _said(kubectl, "job/speak", "--since-time=2100-01-01T00:00:00Z") == ""
    both = kubectl("logs", "job/speak", "--since=1h", "--since-time=2020-01-01T00:00:00Z", code=1)
    assert "at most one of `sinceTime` or `sinceSeconds` may be specified" in both


@on_every_version
def test_timestamps_are_put_before_each_line(kubectl: Kubectl) -> None:
    stamped = _said(kubectl, "job/speak", "--timestamps").splitlines()
    assert [re.sub(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z ", "", line) for line in stamped] == ["one", "two", "three"]


@on_every_version
def test_a_followed_log_ends_with_the_container(kubectl: Kubectl) -> None:
    assert _said(kubectl, "-f", "job/speak") == "one\ntwo\nthree\n"
    go = kubectl.home / "go-on"
    kubectl.bring_up(a_job("followed", f"echo one; until [ -e {go} ]; do sleep 0.05; done; echo two"))
    running = kubectl.start("logs", "-f", "job/followed")
    with following(running) as line:
        line("^one$")
        assert running.poll() is None
        go.touch()
        line("^two$")
        assert running.wait(SECONDS) == 0


@on_every_version
def test_a_line_is_followed_soon_after_it_was_written(kubectl: Kubectl) -> None:
    """Each line says when it was written. Half of them are here within 300 ms, although tests share the machine."""
    kubectl.bring_up(a_job("stamps", "while :; do date +%s%N; sleep 0.1; done"))
    with following(kubectl.start("logs", "-f", "job/stamps", "--tail=0")) as line:
        ages = sorted(time.time_ns() - int(line("^[0-9]+$")) for _ in range(21))
    assert ages[10] < 300_000_000, ages
    kubectl("delete", "job", "stamps")


@on_every_version
def test_the_life_before_is_told(kubectl: Kubectl) -> None:
    assert kubectl("logs", "job/again") == "1\n"
    assert kubectl("logs", "job/again", "--previous") == "2\n"
    said = kubectl("logs", _pod(kubectl), "-c", "main", "--previous", code=1)
    assert said == (
        f'Error from server (BadRequest): previous terminated container "main" in pod "{_pod(kubectl)}" not found\n'
    )


@on_every_version
def test_what_has_no_log_says_so(kubectl: Kubectl) -> None:
    for name, resource in [("nix", "pods"), ("job/nix", "jobs.batch")]:
        said = kubectl("logs", name, code=1)
        # From 1.30 on, kubectl names the namespace.
        assert re.fullmatch(
            rf'Error from server \(NotFound\): {resource} "nix" not found\n'
            rf'|error: error from server \(NotFound\): {resource} "nix" not found in namespace "{kubectl.namespace}"\n',
            said,
        )
    kubectl("create", "cronjob", "logless", "--schedule=0 0 1 1 *", "--image=busybox")
    assert "cannot get the logs from" in kubectl("logs", "cronjob/logless", code=1)
    waits = a_job("waits-for-ever", "true", pod={"nodeSelector": {"nix": "nix"}})
    kubectl.send("create", waits)
    kubectl("wait", "--for=condition=PodScheduled=false", "pod", "-l", "job-name=waits-for-ever", TIMEOUT)
    assert kubectl("logs", "job/waits-for-ever", "--pod-running-timeout=1s") == ""
    kubectl("delete", "job", "waits-for-ever")
    many = kubectl("logs", "-f", "-l", "job-name=speak", "--all-containers", "--max-log-requests=1", code=1)
    assert "you are attempting to follow 3 log streams, but maximum allowed concurrency is 1" in many

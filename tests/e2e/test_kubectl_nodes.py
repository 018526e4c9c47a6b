"""`kubectl cordon`, `drain`, `taint` and `top`. All versions share the node, so where its state is looked at, each waits for
its turn."""

import platform
import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from app.runtimes.process.runtime import VERSION
from tests.e2e.cluster import until
from tests.e2e.kubectl import (
    COMPLETE,
    SECONDS,
    TIMEOUT,
    Kubectl,
    everywhere,
    following,
    on_every_version,
    one_after_the_other,
    rows,
    words,
)
from tests.e2e.manifests import FOREVER, a_job


@pytest.fixture(scope="module", autouse=True)
def busy(kubectls: list[Kubectl]) -> None:
    """A Job that goes on, so that it has been measured when the last test looks."""
    everywhere(kubectls, lambda each: each.bring_up(a_job("busy", FOREVER)))


@contextmanager
def _free_in_the_end(kubectl: Kubectl, node: str) -> Iterator[None]:
    try:
        yield
    finally:
        kubectl("uncordon", node)


@on_every_version
@one_after_the_other
def test_a_cordoned_node_is_shown_and_takes_no_pods(kubectl: Kubectl) -> None:
    node = kubectl.node()
    with _free_in_the_end(kubectl, node):
        assert kubectl("cordon", node, "--dry-run=server") == f"node/{node} cordoned (server dry run)\n"
        assert kubectl("cordon", node) == f"node/{node} cordoned\n"
        assert kubectl("cordon", node) == f"node/{node} already cordoned\n"
        assert rows(kubectl("get", "nodes"))[1][1] == "Ready,SchedulingDisabled"
        kubectl.send("create", a_job("kept-out", "true"))
        kubectl("wait", "--for=condition=PodScheduled=false", "pod", "-l", "job-name=kept-out", TIMEOUT)
        assert kubectl("uncordon", node) == f"node/{node} uncordoned\n"
    kubectl("wait", COMPLETE, "job/kept-out", TIMEOUT)
    assert kubectl("cordon", "nix", code=1) == 'Error from server (NotFound): nodes "nix" not found\n'


@on_every_version
def test_a_wide_list_of_nodes_tells_the_runtime_and_the_machine(kubectl: Kubectl) -> None:
    heading, node = kubectl("get", "nodes", "-o", "wide").splitlines()

    assert heading.split()[-3:] == ["OS-IMAGE", "KERNEL-VERSION", "CONTAINER-RUNTIME"]
    assert node.split()[-2:] == [platform.release(), f"process://{VERSION}"]


@on_every_version
@one_after_the_other
def test_a_taint_comes_changes_and_goes(kubectl: Kubectl) -> None:
    node = kubectl.node()
    assert kubectl("taint", "nodes", node, "colour=red:PreferNoSchedule") == f"node/{node} tainted\n"
    assert "Taints: colour=red:PreferNoSchedule\n" in words(kubectl("describe", "node", node))
    said = kubectl("taint", "nodes", node, "colour=blue:PreferNoSchedule", code=1)
    assert "already has colour taint(s) with same effect(s) and --overwrite is false" in said
    changed = kubectl("taint", "nodes", node, "colour=blue:PreferNoSchedule", "--overwrite")
    assert changed == f"node/{node} modified\n"
    assert kubectl("taint", "nodes", node, "colour-") == f"node/{node} untainted\n"
    assert kubectl("get", "node", node, "-o", "jsonpath={.spec.taints}") == ""


@on_every_version
def test_a_drain_moves_pods_away_but_respects_a_disruption_budget(kubectl: Kubectl) -> None:
    node, name = kubectl.node(), f"drained-{kubectl.minor}"
    (pod,) = kubectl.bring_up(a_job(name, FOREVER))
    drain = ("drain", node, f"--pod-selector=job-name={name}", "--ignore-daemonsets")
    with _free_in_the_end(kubectl, node):
        assert "(server dry run)" in kubectl(*drain, "--dry-run=server")
        kubectl("create", "pdb", "keep", f"--selector=job-name={name}", "--min-available=1")
        kubectl("wait", "--for=jsonpath={.status.currentHealthy}=1", "pdb/keep", TIMEOUT)
        with following(kubectl.start(*drain, TIMEOUT)) as told:
            told(f"^node/{node} (already )?cordoned")
            told("error when evicting .*Cannot evict pod as it would violate the pod's disruption budget")
            kubectl("delete", "pdb", "keep")
            told(f"^{pod} evicted")
            told(f"^node/{node} drained")
        assert "(NotFound)" in kubectl("get", pod, code=1)
    (another,) = kubectl.started(name)
    with _free_in_the_end(kubectl, node):
        assert f"{another} deleted\n" in kubectl(*drain, "--disable-eviction", TIMEOUT)
    kubectl("delete", "job", name)


@on_every_version
def test_a_drain_refuses_pods_that_nobody_would_make_again(kubectl: Kubectl) -> None:
    node, name = kubectl.node(), f"lonely-{kubectl.minor}"
    kubectl("run", name, "--image=busybox", "--restart=Never", "--", "sleep", "1000")
    kubectl("wait", "--for=condition=Ready", f"pod/{name}", TIMEOUT)
    drain = ("drain", node, f"--pod-selector=run={name}")
    with _free_in_the_end(kubectl, node):
        assert re.search(r"annot delete .*declare no controller \(use --force to override\)", kubectl(*drain, code=1))
        assert f"pod/{name} evicted\n" in kubectl(*drain, "--force", "--grace-period=0", TIMEOUT)


@on_every_version
def test_top_shows_what_nodes_and_pods_use(kubectl: Kubectl) -> None:
    (name,) = kubectl.pods("busy")
    until(lambda: name in _top(kubectl), SECONDS, "the pod is measured")
    heading, row = rows(kubectl("top", "pod", name))
    assert heading == ["NAME", "CPU(cores)", "MEMORY(bytes)"]
    assert re.fullmatch(r"\d+m \d+Mi", " ".join(row[1:]))
    assert words(kubectl("top", "pod", name, "--containers")).splitlines()[0] == "POD NAME CPU(cores) MEMORY(bytes) "
    heading, *nodes = rows(kubectl("top", "nodes"))
    assert re.fullmatch(r"NAME CPU\(cores\) CPU(%|\(%\)) MEMORY\(bytes\) MEMORY(%|\(%\))", " ".join(heading))  # 1.32
    assert re.fullmatch(r"\S+ \d+m \d+% \d+Mi \d+%", " ".join(nodes[0]))
    assert kubectl("top", "pod", "nix", code=1) == 'Error from server (NotFound): pods "nix" not found\n'
    kubectl("delete", "job", "busy")


def _top(kubectl: Kubectl) -> str:
    with kubectl.start("top", "pods") as running:
        out, _ = running.communicate(timeout=SECONDS)
    return out

"""Who is placed when: gates, priority and age, and what wakes those who wait. As kubectl shows it."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from app.scheduler.fit_hints import without_hint
from tests.e2e.cluster import until
from tests.e2e.kubectl import SECONDS, rows, words
from tests.e2e.scheduling import Site, a_node, a_pod

SOON = 20  # seconds after what helps; by time alone it would be minutes
CONDITION = "jsonpath={.status.conditions[?(@.type=='PodScheduled')]['status','reason','message']}"


def large(name: str, **spec: Any) -> dict[str, Any]:
    """A node has room for one."""
    return a_pod(name, requests={"cpu": "3"}, **spec)


# Gates


def test_a_gated_pod_is_not_looked_at_until_all_its_gates_are_gone(site: Site) -> None:
    site.nodes(a_node("a"))
    gates = [{"name": "example.com/quota"}, {"name": "example.com/data"}]
    site.pods(a_pod("gated", schedulingGates=gates), a_pod("free"))
    assert site.outcome("free") == {"free": "a"}

    heading, row = rows(site.kubectl("get", "pod", "gated"))
    assert row[heading.index("STATUS")] == "SchedulingGated"
    said = site.kubectl("get", "pod", "gated", "-o", CONDITION)
    assert said == "False SchedulingGated Scheduling is blocked due to non-empty scheduling gates"
    assert "Events: <none>" in words(site.kubectl("describe", "pod", "gated"))

    remove = json.dumps([{"op": "remove", "path": "/spec/schedulingGates/0"}])
    site.kubectl("patch", "pod", "gated", "--type=json", "--patch", remove)
    assert rows(site.kubectl("get", "pod", "gated"))[1][heading.index("STATUS")] == "SchedulingGated"
    added = json.dumps([{"op": "add", "path": "/spec/schedulingGates/-", "value": {"name": "example.com/more"}}])
    said = site.kubectl("patch", "pod", "gated", "--type=json", "--patch", added, code=1)
    assert "only deletion is allowed, but found new scheduling gate 'example.com/more'" in said

    site.kubectl("patch", "pod", "gated", "--type=merge", "--patch", '{"spec": {"schedulingGates": null}}')
    site.comes("gated", "a", SOON)
    assert site.outcome("gated") == {"gated": "a"}


def test_while_it_is_gated_a_pod_may_be_told_to_want_less_choice(site: Site) -> None:
    """What a queue does that gates pods: it lets them go where it found room."""
    site.nodes(a_node("a"), a_node("b", labels={"flavour": "spot"}))
    site.pods(a_pod("gated", schedulingGates=[{"name": "example.com/quota"}]))

    site.kubectl("patch", "pod", "gated", "--patch", '{"spec": {"nodeSelector": {"flavour": "spot"}}}')
    site.kubectl("patch", "pod", "gated", "--type=merge", "--patch", '{"spec": {"schedulingGates": []}}')
    assert site.outcome("gated") == {"gated": "b"}


# Priority, then age


@pytest.fixture
def classes(site: Site) -> Iterator[dict[str, int]]:
    """Priorities that have nobody go."""
    api, values = site.kubectl.api, {"high": 1000, "low": -5}
    path = "/apis/scheduling.k8s.io/v1/priorityclasses"
    for name, value in values.items():
        made = {"metadata": {"name": name}, "value": value, "preemptionPolicy": "Never"}
        api.post(path, json=made).raise_for_status()
    yield values
    for name in values:
        api.delete(f"{path}/{name}").raise_for_status()


def _a_second_later() -> None:
    """Who comes now is younger."""
    began = int(time.time())
    until(lambda: int(time.time()) > began, SECONDS, "another second")


def test_the_more_important_come_first_and_then_the_older(site: Site, classes: dict[str, int]) -> None:
    site.nodes(a_node("a"))
    assert site.try_(large("first")) == {"first": "a"}
    line = [
        large("d-low", priorityClassName="low"),
        large("c-older"),
        large("b-younger"),
        large("a-high", priorityClassName="high"),
    ]
    for pod in line:
        site.pods(pod)
        _a_second_later()
    why = "0/1 nodes are available: 1 Insufficient cpu."
    assert site.outcome(*(each["metadata"]["name"] for each in line)) == dict.fromkeys(
        (each["metadata"]["name"] for each in line), why
    )
    assert site.why("a-high") == f"{why} preemption: not eligible due to preemptionPolicy=Never."
    shown = words(site.kubectl("describe", "pod", "a-high"))
    assert f"Priority: {classes['high']}\nPriority Class Name: high\n" in shown

    for gone, then in (("first", "a-high"), ("a-high", "c-older"), ("c-older", "b-younger"), ("b-younger", "d-low")):
        site.remove(gone)
        site.comes(then, "a", SOON)


# Woken


def test_a_label_put_on_a_node_wakes_who_waits_for_it(site: Site) -> None:
    site.nodes(a_node("a"), a_node("b"))
    why = "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector."
    assert site.try_(a_pod("waits", nodeSelector={"disk": "ssd"})) == {"waits": why}

    site.kubectl("label", "node", "b", "disk=ssd")
    site.comes("waits", "b", SOON)


def test_a_node_that_comes_wakes_those_for_whom_there_was_none(site: Site) -> None:
    assert site.try_(a_pod("waits")) == {"waits": "no nodes available to schedule pods"}

    site.nodes(a_node("a"))
    site.comes("waits", "a", SOON)


def test_a_pod_that_ends_wakes_whoever_fits_in_its_place(site: Site) -> None:
    site.nodes(a_node("a"))
    why = "0/1 nodes are available: 1 Insufficient cpu."
    assert site.try_(large("runs"), large("waits"), a_pod("huge", requests={"cpu": "5"})) == {
        "runs": "a",
        "waits": why,
        "huge": why,
    }
    done = '{"status": {"phase": "Succeeded"}}'
    site.kubectl("patch", "pod", "runs", "--subresource=status", "--type=merge", "--patch", done)
    site.comes("waits", "a", SOON)
    assert site.outcome("huge") == {"huge": why}


def test_a_toleration_that_is_added_to_a_pod_lets_it_in(site: Site) -> None:
    site.nodes(a_node("a", spec={"taints": [{"key": "gpu", "effect": "NoSchedule"}]}))
    assert site.try_(a_pod("waits")) == {"waits": "0/1 nodes are available: 1 node(s) had untolerated taint {gpu: }."}

    more = json.dumps([{"op": "add", "path": "/spec/tolerations/-", "value": {"key": "gpu", "operator": "Exists"}}])
    site.kubectl("patch", "pod", "waits", "--type=json", "--patch", more)
    site.comes("waits", "a", SOON)


def test_however_often_it_was_looked_at_in_vain_what_helps_helps_at_once(site: Site) -> None:
    """Each look in vain makes the next wait longer, up to ten seconds: but not if the pod is next and would fit."""
    site.nodes(a_node("a"), a_node("b"))
    site.kubectl("cordon", "a", "b")
    assert site.try_(a_pod("waits")) == {"waits": "0/2 nodes are available: 2 node(s) were unschedulable."}
    for number in range(8):
        site.kubectl("label", "node", "b", f"look={number}", "--overwrite")

    site.kubectl("uncordon", "a")
    began = time.monotonic()
    site.comes("waits", "a", SOON)
    assert time.monotonic() - began < 5


# What is said


def test_the_reasons_of_all_nodes_are_counted_as_kubernetes_counts_them(site: Site) -> None:
    site.nodes(
        a_node("a", cpu="1"),
        *(a_node(name, spec={"taints": [{"key": "a", "value": "b", "effect": "NoSchedule"}]}) for name in "bc"),
    )
    why = (
        "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) had untolerated taint {a: b}. "
        "preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."
    )
    site.pods(a_pod("waits", requests={"cpu": "2"}))
    assert site.why("waits") == why

    said = site.kubectl("get", "pod", "waits", "-o", CONDITION)
    assert without_hint(said) == f"False Unschedulable {why}"
    shown = words(site.kubectl("describe", "pod", "waits"))
    assert "Status: Pending\n" in shown
    assert "PodScheduled False" in shown
    event = "reason=FailedScheduling,involvedObject.name=waits"
    columns = "custom-columns=T:.type,R:.reason,O:.involvedObject.kind,C:.source.component,M:.message"
    (line,) = rows(site.kubectl("get", "events", "--field-selector", event, "-o", columns, "--no-headers"))
    assert [*line[:4], without_hint(line[4])] == ["Warning", "FailedScheduling", "Pod", "default-scheduler", why]


def test_what_others_would_have_to_go_for_is_told_of_the_nodes_where_it_would_help(site: Site) -> None:
    site.nodes(a_node("a"), a_node("b", cpu="1"), a_node("c"))
    site.kubectl("cordon", "c")
    assert site.try_(large("first")) == {"first": "a"}
    site.pods(large("second"))
    assert site.why("second") == (
        "0/3 nodes are available: 1 node(s) were unschedulable, 2 Insufficient cpu. "
        "preemption: 0/3 nodes are available: 1 No preemption victims found for incoming pod, "
        "2 Preemption is not helpful for scheduling."
    )

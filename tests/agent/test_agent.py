"""The whole agent against an API and a runtime that the test plays: situations by name."""

import asyncio
import base64
import logging
from datetime import timedelta

import pytest

from app.agent.pods.pod_termination import LINGER
from app.agent.pods.pods import CONFLICT_RETRY, RELIST
from app.kinds.pod.container import Container, EnvVar, EnvVarSource, SecretKeySelector
from app.kinds.pod.pod import PodStatus
from app.runtimes.base import ContainerKey, ContainerStatus, StartError
from tests.agent.scene import Scene
from tests.log_lines import lines

LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1"
NODE = "/api/v1/nodes/n1"


async def test_a_pod_starts_and_finishes(scene: Scene) -> None:
    scene.start_agent()
    await scene.running()
    scene.runtime.exit(0)
    await scene.api.until(lambda: scene.runtime.removed)

    assert scene.api.journal == ["web Running", "web Succeeded"]
    assert scene.container().state.terminated.exit_code == 0
    assert scene.runtime.started == [scene.runtime.key()]
    assert scene.runtime.removed == ["u-1"]


async def test_a_pod_that_is_already_bound_is_run_too(scene: Scene) -> None:
    scene.api.bind()
    scene.start_agent()

    await scene.api.until(lambda: scene.api.phase() == "Running")


async def test_a_failing_container_is_restarted_with_back_off(scene: Scene) -> None:
    scene.start_agent()
    await scene.running(restart_policy="OnFailure")
    scene.runtime.exit(1)
    await scene.api.until(lambda: scene.runtime.was_started(attempt=1))
    scene.runtime.exit(2, attempt=1)
    await scene.api.until(lambda: scene.container().state.waiting)

    assert scene.container().state.waiting.reason == "CrashLoopBackOff"
    assert scene.container().last_state.terminated.exit_code == 2

    scene.clock.advance(9)
    assert not scene.runtime.was_started(attempt=2)
    scene.clock.advance(1)
    await scene.api.until(lambda: scene.runtime.was_started(attempt=2))
    scene.runtime.exit(0, attempt=2)
    await scene.api.until(lambda: scene.api.phase() == "Succeeded")

    assert scene.container().restart_count == 2
    assert len(scene.runtime.started) == 3


async def test_a_pod_that_never_restarts_fails_with_its_exit_code(scene: Scene) -> None:
    scene.start_agent()
    await scene.running()
    scene.runtime.exit(42)
    await scene.api.until(lambda: scene.api.phase() == "Failed")

    assert scene.container().state.terminated.exit_code == 42


async def test_init_containers_come_first(scene: Scene) -> None:
    scene.start_agent()
    scene.api.bind(init_containers=(Container(name="first", image="i", command=("run",)),))
    await scene.api.until(lambda: scene.runtime.was_started("first"))
    assert not scene.runtime.was_started("main")

    scene.runtime.exit(0, "first")
    await scene.api.until(lambda: scene.api.phase() == "Running")

    assert [key.name for key in scene.runtime.started] == ["first", "main"]


async def test_a_running_pod_that_is_deleted_stops_with_its_grace(scene: Scene) -> None:
    scene.start_agent()
    await scene.running()
    scene.api.delete(grace=7)
    await scene.api.until(lambda: scene.api.phase() == "gone" and scene.runtime.removed)

    assert scene.runtime.stops == [(scene.runtime.key(), timedelta(seconds=7))]
    assert scene.api.journal[-1] == "web Failed gone"


async def test_a_shorter_grace_is_passed_on(scene: Scene) -> None:
    scene.runtime.stubborn.add("main")
    scene.start_agent()
    await scene.running()
    scene.api.delete(grace=60)
    await scene.api.until(lambda: scene.runtime.stops)
    scene.api.delete(grace=1)
    await scene.api.until(lambda: len(scene.runtime.stops) == 2)

    assert [grace.total_seconds() for _, grace in scene.runtime.stops] == [60, 1]


async def test_a_pod_deleted_by_force_is_stopped_all_the_same(scene: Scene) -> None:
    scene.start_agent()
    await scene.running()
    scene.api.delete(grace=0)
    await scene.api.until(lambda: scene.runtime.removed)

    assert [key for key, _ in scene.runtime.stops] == [scene.runtime.key()]


async def test_a_deleted_pod_with_a_finalizer_stays_as_finished(scene: Scene) -> None:
    scene.start_agent()
    await scene.running(metadata={"finalizers": ("batch.kubernetes.io/job-tracking",)})
    scene.api.delete()
    await scene.api.until(lambda: scene.runtime.removed)

    assert scene.api.phase() == "Failed"


async def test_a_restarted_agent_adopts_what_runs(scene: Scene) -> None:
    scene.start_agent()
    await scene.running()
    await scene.stop_agent()
    assert scene.runtime.stops == []

    scene.start_agent()
    await scene.api.until(lambda: scene.api.requests.count("GET /api/v1/pods watch") == 2)
    scene.runtime.exit(3)
    await scene.api.until(lambda: scene.api.phase() == "Failed")

    assert scene.container().state.terminated.exit_code == 3
    assert len(scene.runtime.started) == 1


async def test_a_restarted_agent_reports_what_ended_meanwhile(scene: Scene) -> None:
    scene.start_agent()
    await scene.running(restart_policy="OnFailure")
    await scene.stop_agent()
    scene.runtime.exit(0)
    scene.runtime.write(b"last words\n")

    scene.start_agent()
    await scene.api.until(lambda: scene.api.phase() == "Succeeded")

    assert scene.api.logs[scene.runtime.key()] == b"last words\n"
    assert len(scene.runtime.started) == 1


async def test_statuses_are_delivered_once_the_api_is_back(scene: Scene) -> None:
    scene.start_agent()
    await scene.running()
    scene.api.go_away()
    scene.runtime.write(b"written in the dark\n")
    scene.runtime.exit(5)
    scene.clock.advance(20)
    scene.api.down = False
    await scene.api.until(lambda: scene.api.phase() == "Failed", scene.tick)

    assert scene.container().state.terminated.exit_code == 5
    assert scene.api.logs[scene.runtime.key()] == b"written in the dark\n"
    assert scene.api.journal == ["web Running", "web log 20", "web Failed"]


async def test_the_last_log_bytes_come_before_the_end_is_told(scene: Scene) -> None:
    scene.start_agent()
    await scene.running()
    scene.runtime.write(b"x" * 200_000)
    scene.runtime.exit(0)
    await scene.api.until(lambda: scene.api.phase() == "Succeeded")

    assert scene.api.journal[-2:] == ["web log 200000", "web Succeeded"]


async def test_logs_are_shipped_while_the_container_runs(scene: Scene) -> None:
    scene.start_agent()
    await scene.running()
    for line in (b"one\n", b"two\n"):
        scene.runtime.write(line)
        await scene.api.until(lambda line=line: scene.api.logs.get(scene.runtime.key(), b"").endswith(line))


async def test_a_log_goes_on_where_the_api_stands(scene: Scene) -> None:
    scene.api.logs[scene.runtime.key()] = b"one\n"
    scene.start_agent()
    await scene.running()
    scene.runtime.write(b"one\ntwo\n")
    scene.runtime.exit(0)
    await scene.api.until(lambda: scene.api.phase() == "Succeeded")

    assert scene.api.logs[scene.runtime.key()] == b"one\ntwo\n"


async def test_a_silent_container_sends_no_log(scene: Scene) -> None:
    scene.start_agent()
    await scene.running()
    scene.runtime.exit(0)
    await scene.api.until(lambda: scene.api.phase() == "Succeeded")

    assert not [each for each in scene.api.requests if each.endswith("/logs")]


async def test_many_pods_share_requests(scene: Scene) -> None:
    scene.start_agent()
    for number in range(100):
        scene.api.bind(f"p{number}", f"u-{number}")
    await scene.api.until(lambda: all(scene.api.phase(uid) == "Running" for uid in scene.api.pods))

    assert len([each for each in scene.api.requests if each.endswith("/statuses")]) <= 20


async def test_a_pod_that_has_ended_for_the_api_is_never_started(scene: Scene) -> None:
    pod = scene.api.bind()
    scene.api._store("MODIFIED", type(pod)(metadata=pod.metadata, spec=pod.spec, status=PodStatus(phase="Failed")))
    scene.start_agent()
    scene.api.bind("other", "u-2")
    await scene.api.until(lambda: scene.api.phase("u-2") == "Running")

    assert [key.pod_uid for key in scene.runtime.started] == ["u-2"]


async def test_late_news_of_a_pod_that_has_ended_does_not_start_it_again(scene: Scene) -> None:
    scene.start_agent()
    await scene.running()
    scene.api.hold_watches = True  # the API has taken note of the end, but its watch lags behind
    scene.runtime.exit(0)
    await scene.api.until(lambda: scene.runtime.removed)
    scene.api._send(next(line for _, change, line in scene.api._history if change == "ADDED"))
    scene.api.let_watches_go()
    scene.api.bind("other", "u-2")
    await scene.api.until(lambda: scene.api.phase("u-2") == "Running")

    assert [key.pod_uid for key in scene.runtime.started] == ["u-1", "u-2"]


async def test_an_end_that_the_api_forgets_is_reported_again(scene: Scene) -> None:
    """Its database went back in time: the container is gone, and its pod must not run again."""
    scene.start_agent()
    await scene.running()
    before = scene.api.pods["u-1"]
    scene.runtime.exit(0)
    await scene.api.until(lambda: scene.api.phase() == "Succeeded" and scene.runtime.removed)
    scene.api._store("MODIFIED", before)
    await scene.api.until(lambda: scene.api.phase() == "Succeeded")

    assert [key.pod_uid for key in scene.runtime.started] == ["u-1"]


async def test_an_end_that_is_reported_again_is_repeated_after_a_conflict(scene: Scene) -> None:
    scene.start_agent()
    await scene.running()
    before = scene.api.pods["u-1"]
    scene.runtime.exit(0)
    await scene.api.until(lambda: scene.api.phase() == "Succeeded" and scene.runtime.removed)
    scene.api.conflicts = 1
    scene.api._store("MODIFIED", before)
    await scene.api.until(lambda: not scene.api.conflicts)
    await scene.api.until(lambda: scene.api.phase() == "Succeeded", lambda: scene.clock.advance(CONFLICT_RETRY))

    assert [key.pod_uid for key in scene.runtime.started] == ["u-1"]


async def test_what_runs_for_no_pod_is_stopped_and_removed(scene: Scene) -> None:
    stray = ContainerKey("u-9", "main", 0)
    scene.runtime.containers[stray] = ContainerStatus(key=stray, state="running", id="x")
    scene.start_agent()
    await scene.api.until(lambda: scene.runtime.removed)

    assert scene.runtime.removed == ["u-9"]
    assert [key for key, _ in scene.runtime.stops] == [stray]


async def test_the_address_of_an_ended_pod_with_a_name_answers_for_some_seconds(scene: Scene) -> None:
    """A peer that started later still reaches it, as in the page of Kubernetes' manual on pods that talk to each other."""
    scene.runtime.ips["u-1"] = "10.1.0.5"
    scene.start_agent()
    await scene.running(subdomain="ring")
    scene.runtime.exit(0)
    await scene.api.until(lambda: scene.api.phase() == "Succeeded")
    await scene.passes(int(LINGER) - 1)
    assert scene.runtime.removed == []

    await scene.passes(2)
    await scene.api.until(lambda: scene.runtime.removed)

    assert scene.runtime.removed == ["u-1"]


async def test_a_deleted_pod_takes_its_address_with_it(scene: Scene) -> None:
    scene.runtime.ips["u-1"] = "10.1.0.5"
    scene.start_agent()
    await scene.running(subdomain="ring")
    scene.api.delete()

    await scene.api.until(lambda: scene.runtime.removed)

    assert scene.runtime.removed == ["u-1"]


async def test_what_could_not_be_removed_goes_with_the_next_relist(scene: Scene) -> None:
    scene.start_agent()
    await scene.running()
    scene.runtime.removal_refusals = [ConnectionError("the container engine is away")]
    scene.runtime.exit(0)
    await scene.api.until(lambda: not scene.runtime.removal_refusals)
    assert scene.runtime.removed == []
    scene.clock.advance(RELIST)
    await scene.api.until(lambda: scene.runtime.removed)

    assert scene.runtime.standing == set()


async def test_a_watch_that_is_too_old_begins_anew(scene: Scene) -> None:
    scene.start_agent()
    await scene.running()
    scene.api.forget_history()
    scene.api.pods.clear()  # and what was deleted meanwhile is noticed
    await scene.api.until(lambda: scene.runtime.removed)

    assert scene.runtime.removed == ["u-1"]


async def test_a_missed_hint_only_costs_time(scene: Scene) -> None:
    scene.start_agent()
    await scene.running()
    scene.runtime._events.clear()
    scene.runtime.exit(0)
    await scene.api.until(lambda: scene.api.phase() == "Succeeded", scene.tick)


async def test_a_hint_without_news_costs_no_pod_its_turn_to_start(scene: Scene) -> None:
    taken, free = asyncio.Event(), asyncio.Event()
    start = scene.runtime.start_container

    async def slowly(spec) -> None:
        if spec.key.pod_uid == "u-slow":
            taken.set()
            await free.wait()
        await start(spec)

    scene.runtime.start_container = slowly
    scene.start_agent(starts=1)
    scene.api.bind(init_containers=(Container(name="init", image="i", command=("run",)),))
    await scene.api.until(lambda: scene.runtime.was_started("init"))
    scene.api.bind("slow", "u-slow")
    await taken.wait()
    scene.runtime.exit(0, "init")
    await scene.api.until(lambda: scene.container("init").state.terminated)
    scene.runtime._hint(scene.runtime._events, scene.runtime.key("init"))
    free.set()
    await scene.api.until(lambda: scene.runtime.was_started("main"))


async def test_a_container_that_cannot_be_started_has_failed(scene: Scene) -> None:
    scene.runtime.refusals["main"] = StartError("no such file", 127)
    scene.start_agent()
    scene.api.bind()
    await scene.api.until(lambda: scene.api.phase() == "Failed")

    ended = scene.container().state.terminated
    assert (ended.exit_code, ended.reason, ended.message) == (127, "StartError", "no such file")


async def test_a_container_waits_for_its_secret(scene: Scene) -> None:
    secret = EnvVarSource(secret_key_ref=SecretKeySelector(name="s", key="k"))
    main = Container(name="main", image="i", command=("run",), env=(EnvVar(name="TOKEN", value_from=secret),))
    scene.start_agent()
    scene.api.bind(containers=(main,))
    await scene.api.until(lambda: scene.api.status().container_statuses)
    waiting = scene.container().state.waiting

    assert (waiting.reason, waiting.message) == ("CreateContainerConfigError", 'secret "s" not found')

    scene.api.objects["/api/v1/namespaces/default/secrets/s"] = {"data": {"k": base64.b64encode(b"hush").decode()}}
    await scene.api.until(lambda: scene.api.phase() == "Running", scene.tick)

    env = scene.runtime.specs[scene.runtime.key()].env

    assert env["TOKEN"] == "hush"
    assert set(env) == {"HOSTNAME", "TOKEN"}


async def test_a_pod_that_is_slow_to_start_says_so(scene: Scene) -> None:
    gate = asyncio.Event()
    start = scene.runtime.start_container

    async def slowly(spec) -> None:
        await gate.wait()
        await start(spec)

    scene.runtime.start_container = slowly
    scene.start_agent()
    scene.api.bind()
    await scene.api.until(lambda: scene.api.status().container_statuses, scene.tick)
    assert scene.container().state.waiting.reason == "ContainerCreating"

    gate.set()
    await scene.api.until(lambda: scene.api.phase() == "Running")


class TestNode:
    async def test_is_registered_with_what_it_has(self, scene: Scene) -> None:
        scene.start_agent()
        await scene.api.until(lambda: "status" in scene.api.objects.get(NODE, {}))

        node = scene.api.objects[NODE]
        conditions = {each["type"]: each["status"] for each in node["status"]["conditions"]}
        assert conditions["Ready"] == "True"
        assert {"cpu", "memory", "ephemeral-storage", "pods"} <= node["status"]["capacity"].keys()
        assert {"type": "InternalIP", "address": "10.0.0.1"} in node["status"]["addresses"]
        assert node["metadata"]["labels"]["kubernetes.io/hostname"] == "n1"

    async def test_renews_its_lease_every_ten_seconds(self, scene: Scene) -> None:
        scene.start_agent()
        await scene.api.until(lambda: LEASE in scene.api.objects)
        assert scene.api.objects[LEASE]["spec"]["renewTime"] == "2026-01-31T12:00:00.000000Z"

        scene.clock.advance(10)
        await scene.api.until(lambda: scene.api.objects[LEASE]["spec"]["renewTime"] == "2026-01-31T12:00:10.000000Z")

    async def test_says_nothing_new_while_nothing_is_new(self, scene: Scene) -> None:
        scene.start_agent()
        await scene.api.until(lambda: "status" in scene.api.objects.get(NODE, {}))
        for _ in range(3):
            before = len(scene.api.requests)
            scene.clock.advance(10)
            await scene.api.until(lambda before=before: f"GET {NODE}" in scene.api.requests[before:])

        assert scene.api.requests.count("POST /api/v1/nodes") == 1  # with its status
        assert scene.api.requests.count(f"PATCH {NODE}/status") == 0

    async def test_corrects_what_is_wrong_about_it(self, scene: Scene) -> None:
        scene.start_agent()
        await scene.api.until(lambda: "status" in scene.api.objects.get(NODE, {}))
        scene.api.objects[NODE]["status"]["conditions"][-1]["status"] = "Unknown"
        await scene.api.until(
            lambda: scene.api.objects[NODE]["status"]["conditions"][-1]["status"] == "True", scene.tick
        )


async def test_one_agent_runs_the_pods_of_many_nodes(scene: Scene) -> None:
    nodes = [f"n{number}" for number in range(20)]
    scene.start_agent(*nodes)
    for node in nodes:
        scene.api.bind(f"pod-{node}", f"u-{node}", node=node)
    await scene.api.until(lambda: all(scene.api.phase(uid) == "Running" for uid in scene.api.pods))

    assert "POST /apis/agents.jobplane.dev/v1/nodes/-/statuses" in scene.api.requests


async def test_a_token_that_is_not_for_the_node_is_told_in_a_line_ever_more_seldom(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.api.refusals["/pods"] = 403
    scene.start_agent()
    ends_at = scene.clock.elapsed() + 600
    await scene.api.until(lambda: scene.clock.elapsed() >= ends_at, scene.tick, patience=60)

    tries = [each for each in caplog.records if each.__dict__.get("fields", {}).get("task") == "pods of n1"]
    assert 3 <= len(tries) <= 600 // 30 + 5
    assert all(each.exc_info is None for each in tries)
    (line,) = [each for each in lines(caplog) if 'task="pods of n1"' in each]
    assert "jobplane token --node" in line

    scene.api.refusals.clear()
    scene.api.bind()
    await scene.api.until(lambda: scene.api.phase() == "Running", scene.tick)


async def test_a_lease_that_is_renewed_again_is_logged_each_time(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    scene.start_agent()
    await scene.running()
    for _ in range(2):
        scene.api.refusals["/leases/n1"] = 500
        await scene.passes(30)
        scene.api.refusals.clear()
        await scene.passes(30)

    assert [each.getMessage() for each in caplog.records].count("lease is renewed again") == 2
    assert len([each for each in lines(caplog) if "cannot renew lease" in each]) == 1


async def test_an_agent_that_starts_before_its_api_has_its_node_soon(scene: Scene) -> None:
    """In a second or two, not with the next status: `jobplane up` starts both at once."""
    scene.api.go_away()
    scene.start_agent()
    await scene.passes(1)
    scene.api.down = False
    began = scene.clock.elapsed()
    await scene.api.until(lambda: "/api/v1/nodes/n1" in scene.api.objects, lambda: scene.clock.advance(0.25))
    assert scene.clock.elapsed() - began < 3

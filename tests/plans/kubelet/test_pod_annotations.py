"""What a node does about a pod with annotations of ours: a timeout for its start, a container that decides for it."""

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from app.kinds.pod.pod import Pod
from app.kinds.pod.pod_annotations import MAIN_CONTAINER, START_TIMEOUT
from app.plans.kubelet.pod_status import PodContext, SetupDelay
from app.plans.kubelet.sync_pod import plan
from tests.plans.kubelet.test_sync_pod import HERE, NOW, a_pod, runs, said

MINUTE = timedelta(minutes=1)
HELD = PodContext(held={"m": SetupDelay("ImagePullBackOff", "no such image", NOW + 2 * MINUTE)})


def annotated(key: str, value: str, **pod: Any) -> Pod:
    made = a_pod(**pod)
    return replace(made, metadata=replace(made.metadata, annotations={key: value}))


class TestStartTimeout:
    def test_fails_a_pod_that_cannot_start_and_says_why(self) -> None:
        pod = annotated(START_TIMEOUT, "1m")

        waiting = plan(pod, [], NOW, HELD)
        late = plan(pod, [], NOW + MINUTE, HELD)

        assert (said(waiting), waiting.again_at) == ("Pending", NOW + MINUTE)
        assert said(late) == "remove, Failed"
        assert late.status.reason == "StartTimeout"
        assert late.status.message == "Containers did not start within 60s: m (ImagePullBackOff: no such image)"
        assert [(each.reason, each.message) for each in late.notes] == [("StartTimeout", late.status.message)]

    @pytest.mark.parametrize(
        ("pod", "seen", "expected"),
        [
            pytest.param({"inits": "a"}, "a0+", "stop a0 in 30, Pending", id="an init container takes too long"),
            pytest.param({"inits": "a"}, "a0=143", "remove, Failed", id="that init container has stopped"),
            pytest.param({"apps": "mn"}, "m0+", "stop m0 in 30, Pending", id="one of two has started"),
            pytest.param({"apps": "mn"}, "m0=143", "remove, Failed", id="that one has stopped"),
            pytest.param({"apps": "mn"}, "m0+ n0+", "Running", id="all have started"),
            pytest.param({}, "m0=0", "remove, Succeeded", id="it has ended already"),
            pytest.param({"restart": "OnFailure"}, "m0=1", "start m1, Running", id="it starts again"),
        ],
    )
    def test_concerns_the_first_start_of_all_containers(self, pod: dict[str, Any], seen: str, expected: str) -> None:
        assert said(plan(annotated(START_TIMEOUT, "1m", **pod), runs(seen), NOW + MINUTE, HERE)) == expected

    def test_a_pod_that_has_started_is_not_looked_at_again_for_it(self) -> None:
        assert plan(annotated(START_TIMEOUT, "1m"), runs("m0+"), NOW, HERE).again_at is None

    def test_a_pod_of_a_client_may_have_any_text(self) -> None:
        assert said(plan(annotated(START_TIMEOUT, "soon"), [], NOW + 100 * MINUTE, HERE)) == "start m0, Pending"


class TestMainContainer:
    @pytest.mark.parametrize(
        ("pod", "seen", "expected"),
        [
            pytest.param({}, "m0+ n0+", "Running", id="runs"),
            pytest.param({}, "m0=0 n0+", "stop n0 in 30, Running", id="ends, and so does the other"),
            pytest.param({}, "m0=0 n0=143", "remove, Succeeded", id="succeeds, whatever the other's code"),
            pytest.param({}, "m0=1 n0=0", "remove, Failed", id="fails, whatever the other's code"),
            pytest.param({}, "m0+ n0=1", "Running", id="runs on without the other"),
            pytest.param({}, "m0=0", "remove, Succeeded", id="ends before the other starts"),
            pytest.param({"restart": "OnFailure"}, "m0=1 n0+", "start m1, Running", id="is restarted"),
            pytest.param(
                {"restart": "OnFailure"}, "m0=0 n0=143", "remove, Succeeded", id="ends, and none is restarted"
            ),
            pytest.param({"sidecars": "s"}, "s0+ m0=0 n0+", "stop n0 in 30, Running", id="sidecars are the last"),
            pytest.param({"deleted": True}, "m0=0 n0=143", "remove, Succeeded", id="decides if the pod is deleted"),
            pytest.param({"deadline": 60}, "m0=0 n0+", "stop n0 in 30, Running", id="ended in time"),
        ],
    )
    def test_decides_for_the_pod(self, pod: dict[str, Any], seen: str, expected: str) -> None:
        assert said(plan(annotated(MAIN_CONTAINER, "m", apps="mn", **pod), runs(seen), NOW, HERE)) == expected

    def test_must_be_one_of_the_pod(self) -> None:
        assert said(plan(annotated(MAIN_CONTAINER, "x", apps="mn"), runs("m0=0 n0+"), NOW, HERE)) == "Running"

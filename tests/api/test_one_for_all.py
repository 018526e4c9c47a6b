"""No request holds up the others: whatever it brings, the event loop goes on to them."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

MOST_SECONDS = 0.1  # of the processor, between two turns of the loop
PODS, MAPS = "/api/v1/namespaces/default/pods", "/api/v1/namespaces/default/configmaps"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
YAML, APPLY = "application/yaml", "application/apply-patch+yaml"


class Turns:
    """The dearest turn of the loop, in seconds of its thread's time: how busy the machine is does not count."""

    def __init__(self) -> None:
        self.longest = 0.0
        self._since = time.thread_time()
        self._turning = True

    def turn(self) -> None:
        now = time.thread_time()
        self.longest, self._since = max(self.longest, now - self._since), now
        if self._turning:
            asyncio.get_running_loop().call_soon(self.turn)

    def stop(self) -> None:
        self._turning = False


@asynccontextmanager
async def turns() -> AsyncIterator[Turns]:
    counted = Turns()
    counted.turn()
    try:
        yield counted
    finally:
        counted.stop()


def configmap(name: str, **parts: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **parts.pop("metadata", {})}, **parts}


def pod(name: str, **spec: Any) -> dict[str, Any]:
    spec = {"containers": [{"name": "main", "image": "busybox"}], **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def job(name: str, count: int) -> dict[str, Any]:
    env = [{"name": f"NAME_{number}", "value": f"value {number}"} for number in range(count)]
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox", "env": env}]}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {"template": template}}


def many(count: int) -> dict[str, str]:
    return {f"key-{number}": "value" for number in range(count)}


def as_json(value: Any) -> Callable[[], bytes]:
    return lambda: json.dumps(value).encode()


@pytest.mark.parametrize(
    ("method", "path", "kind", "body", "code"),
    [
        pytest.param("POST", REVIEWS, "", lambda: b"[" * 3_000_000, 400, id="open brackets"),
        pytest.param("POST", REVIEWS, "", lambda: b'[{"a":' * 420_000, 400, id="open objects"),
        pytest.param(
            "POST", REVIEWS, "", lambda: b"[" + b",".join([b"[" * 99 + b"]" * 99] * 15_000) + b"]", 413, id="brackets"
        ),
        pytest.param("POST", REVIEWS, "", lambda: b"[" + b'"",' * 1_000_000 + b"1]", 413, id="a million values"),
        pytest.param("POST", REVIEWS, YAML, lambda: b"- a\n" * 99_000, 400, id="a YAML list"),
        pytest.param("POST", REVIEWS, YAML, lambda: b"[" + b"a," * 99_000 + b"]", 400, id="a YAML list in brackets"),
        pytest.param("POST", REVIEWS, YAML, lambda: b"[" + b"a," * 8_000 + b"]", 400, id="a small YAML list"),
        pytest.param(
            "POST", REVIEWS, YAML, lambda: b"".join(b"k%d: a\n" % n for n in range(49_000)), 201, id="a YAML map"
        ),
        pytest.param(
            "POST",
            PODS,
            "",
            as_json(pod("p", volumes=[{"name": f"v{n}", "emptyDir": {}} for n in range(20_000)])),
            201,
            id="a pod of 20,000 volumes",
        ),
        pytest.param(
            "POST",
            PODS,
            "",
            as_json(pod("p", volumes=[{"name": "V"} for n in range(20_000)])),
            422,
            id="a pod of 20,000 faults",
        ),
        pytest.param(
            "POST", MAPS, "", as_json(configmap("m", metadata={"labels": many(60_000)})), 413, id="60,000 labels"
        ),
        pytest.param(
            "POST", f"{JOBS}?dryRun=All", "", as_json(job("j", 25_000)), 413, id="a Job beyond what is stored"
        ),
        pytest.param("POST", f"{JOBS}?dryRun=All", "", as_json(job("j", 10_000)), 201, id="a large Job"),
        pytest.param("POST", JOBS, "", as_json(job("j", 400)), 201, id="a Job that is just small enough for the loop"),
    ],
)
async def test_the_loop_goes_on_while_it_is_sent(
    admin: httpx.AsyncClient, method: str, path: str, kind: str, body: Callable[[], bytes], code: int
) -> None:
    sent, headers = body(), {"Content-Type": kind or "application/json"}
    async with turns() as counted:
        answer = await admin.request(method, path, content=sent, headers=headers)

    assert answer.status_code == code, answer.text[:300]
    assert counted.longest < MOST_SECONDS


@pytest.mark.parametrize(
    ("kind", "patch", "code"),
    [
        pytest.param(APPLY, configmap("m", data=dict.fromkeys(many(40_000), "other")), 409, id="40,000 conflicts"),
        pytest.param(APPLY, configmap("m", data={"new": "one"}), 200, id="a small apply"),
        pytest.param("application/merge-patch+json", {"data": {"new": "one"}}, 200, id="a small merge patch"),
        pytest.param("application/strategic-merge-patch+json", {"data": {"new": "one"}}, 200, id="a strategic one"),
        pytest.param(
            "application/json-patch+json",
            [{"op": "copy", "from": "/data", "path": "/data"}] * 2 + [{"op": "add", "path": "/data/new", "value": "1"}],
            200,
            id="a small JSON patch",
        ),
    ],
)
async def test_the_loop_goes_on_while_a_large_object_is_patched(
    admin: httpx.AsyncClient, kind: str, patch: Any, code: int
) -> None:
    sent = json.dumps(configmap("m", data=many(40_000))).encode()
    assert (await admin.post(MAPS, content=sent, headers={"Content-Type": "application/json"})).status_code == 201
    body = json.dumps(patch).encode()
    async with turns() as counted:
        answer = await admin.patch(f"{MAPS}/m?fieldManager=other", content=body, headers={"Content-Type": kind})

    assert answer.status_code == code, answer.text[:300]
    assert counted.longest < MOST_SECONDS

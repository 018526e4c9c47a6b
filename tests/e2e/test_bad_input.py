"""Whatever a client sends, the answer is a Status below 500, nothing is stored, and the server goes on."""

import base64
import copy
import json
import os
from collections.abc import Iterator
from typing import Any, NamedTuple

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.e2e.cluster import Cluster, until
from tests.e2e.manifests import a_job

NAMESPACE = "bad-input"
JOBS = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
JOB = f"{JOBS}/victim"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
JSON = "application/json"
MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"
JSON_PATCH, APPLY = "application/json-patch+json", "application/apply-patch+yaml"
YAML, PROTOBUF = "application/yaml", "application/vnd.kubernetes.protobuf"


class Sent(NamedTuple):
    """A request, and the code that it must be answered with."""

    code: int
    method: str
    path: str
    body: bytes = b""
    content_type: str = JSON
    accept: str = JSON


@pytest.fixture(scope="module")
def client(cluster: Cluster) -> Iterator[httpx.Client]:
    """An administrator's, with one Job there that must stay as it is."""
    with cluster.client() as client:
        client.post("/api/v1/namespaces", json={"metadata": {"name": NAMESPACE}}).raise_for_status()
        client.post(JOBS, json=a_job("victim", "true", suspend=True)).raise_for_status()
        until(lambda: "conditions" in client.get(JOB).json()["status"], 20, "its controller has seen to it")
        yield client


def stored(client: httpx.Client) -> list[dict[str, Any]]:
    """Every object that a bad request could have made or changed."""
    kinds = [JOBS, PODS, *(PODS.replace("pods", kind) for kind in ("configmaps", "secrets"))]
    return [item for path in kinds for item in client.get(path).raise_for_status().json()["items"]]


def is_a_status(answer: httpx.Response) -> bool:
    said = answer.json()
    assert (said["kind"], said["apiVersion"], said["status"]) == ("Status", "v1", "Failure"), said
    assert said["code"] == answer.status_code
    assert said["message"]
    assert said["reason"]
    return True


def refused(client: httpx.Client, sent: Sent) -> None:
    before = stored(client)
    headers = {"Content-Type": sent.content_type, "Accept": sent.accept}
    answer = client.request(sent.method, sent.path, content=sent.body or None, headers=headers)
    assert answer.status_code == sent.code, answer.text
    assert is_a_status(answer)
    assert stored(client) == before


def job(**changes: Any) -> bytes:
    """A Job that would be fine but for the changes; a dot in a name leads inwards."""
    document = a_job("bad", "true", suspend=True)
    for path, value in changes.items():
        *inwards, last = path.split("__")
        place: Any = document
        for step in inwards:
            place = place[step]
        place[last] = value
    return json.dumps(document).encode()


def text(document: str) -> bytes:
    """A Job with this for a label's value, as raw JSON."""
    return job(metadata={"name": "bad", "labels": {"x": "HERE"}}).replace(b'"HERE"', document.encode())


BODIES = {
    "an empty body": b"",
    "half an object": b'{"kind": "Job"',
    "something after the object": job() + b"}",
    "no JSON at all": b"hello",
    "an array": b"[]",
    "an array of a Job": b"[" + job() + b"]",
    "a string": b'"Job"',
    "a number": b"1",
    "a NUL byte": job().replace(b"bad", b"b\0d"),
    "an escaped NUL": text(r'"\u0000"'),
    "invalid UTF-8": job().replace(b"bad", b"b\xff"),
    "overlong UTF-8": job().replace(b"bad", b"b\xc0\xaf"),
    "a surrogate as UTF-8": job().replace(b"bad", b"b\xed\xa0\x80"),
    "a lone surrogate": text(r'"\ud800"'),
    "a byte order mark in UTF-16": job().decode().encode("utf-16"),
    "NaN": text("NaN"),
    "Infinity": text("Infinity"),
    "a number beyond all floats": job(spec__parallelism=1).replace(b'"parallelism": 1', b'"parallelism": 1e400'),
    "a deep array": text("[" * 50_000 + "]" * 50_000),
    "a deep object": text('{"a":' * 10_000 + "1" + "}" * 10_000),
    "brackets that never close": b"[" * 100_000,
    "a string for the spec": job(spec="yes"),
    "a number for the metadata": job(metadata=7),
    "a string for a number": job(spec__parallelism="3"),
    "a fraction for a number": job(spec__parallelism=1.5),
    "a number beyond 32 bits": job(spec__parallelism=2**31),
    "a number beyond 64 bits": job(spec__activeDeadlineSeconds=2**64),
    "a number for a label": job(metadata={"name": "bad", "labels": {"a": 1}}),
    "an object for a list": job(spec__template__spec__containers={}),
    "a moment that is none": job(metadata={"name": "bad", "creationTimestamp": "yesterday"}),
    "another kind": job(kind="Pod"),
    "a kind that nobody knows": job(kind="Nonsense"),
    "another API version": job(apiVersion="batch/v1beta1"),
    "a resourceVersion": job(metadata={"name": "bad", "resourceVersion": "1"}),
    "another namespace": job(metadata={"name": "bad", "namespace": "default"}),
}
UNPROCESSABLE = {
    "null": b"null",
    "null in a list": job(spec__template__spec__containers=[None]),
    "no name": job(metadata={}),
    "a name in capitals": job(metadata={"name": "Bad"}),
    "a name with a slash": job(metadata={"name": "a/b"}),
    "a name that leads upwards": job(metadata={"name": ".."}),
    "a name with a line break": job(metadata={"name": "a\nb"}),
    "a name with a percent sign": job(metadata={"name": "a%2fb"}),
    "an endless name": job(metadata={"name": "a" * 300}),
    "a generateName in capitals": job(metadata={"generateName": "Bad-"}),
    "a label that is too long": job(metadata={"name": "bad", "labels": {"a": "b" * 64}}),
    "a label without a name": job(metadata={"name": "bad", "labels": {"": "b"}}),
    "an annotation with a bad name": job(metadata={"name": "bad", "annotations": {"a b": ""}}),
    "a finalizer without a domain": job(metadata={"name": "bad", "finalizers": ["x y"]}),
    "no template": job(spec={}),
    "no containers": job(spec__template__spec__containers=[]),
    "a negative parallelism": job(spec__parallelism=-1),
    "a restart policy that Jobs may not have": job(spec__template__spec__restartPolicy="Always"),
    "a restart policy that nobody knows": job(spec__template__spec__restartPolicy="Perhaps"),
    "a completion mode that nobody knows": job(spec__completionMode="Sideways"),
    "a selector of one's own": job(spec__selector={"matchLabels": {"a": "b"}}),
}
HUGE = {
    "more than three MiB": job(metadata={"name": "bad", "annotations": {"a": "b" * (3 << 20)}}),
    "more values than anybody needs": job(metadata={"name": "bad", "finalizers": [""] * 150_000}),
}


def growing() -> bytes:
    """A few lines of YAML that mean 9 to the power of 30 values."""
    lines = ["a0: &a0 [1]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 30))]
    return "\n".join(lines).encode()


OTHER_BODIES = {
    "YAML that is none": Sent(400, "POST", JOBS, b"a: [b", YAML),
    "YAML that makes objects": Sent(400, "POST", JOBS, b"!!python/object/apply:os.system ['true']", YAML),
    "YAML that refers to itself": Sent(400, "POST", JOBS, b"a: &a [*a]", YAML),
    "YAML that grows": Sent(400, "POST", JOBS, growing(), YAML),
    "protobuf that is none": Sent(400, "POST", JOBS, b"k8s\0\xff\xff\xff\xff", PROTOBUF),
    "protobuf without its first bytes": Sent(400, "POST", JOBS, b"\x0a\x03abc", PROTOBUF),
    "an unknown field, strictly": Sent(400, "POST", f"{JOBS}?fieldValidation=Strict", job(spec__colour="red")),
    "a duplicate field, strictly": Sent(
        400, "POST", f"{JOBS}?fieldValidation=Strict", job().replace(b'"spec"', b'"kind": "Job", "spec"', 1)
    ),
    "plain text": Sent(415, "POST", JOBS, job(), "text/plain"),
    "a form": Sent(415, "POST", JOBS, b"a=b", "application/x-www-form-urlencoded"),
    "a content type that is none": Sent(415, "POST", JOBS, job(), "///"),
}  # fmt: skip
QUERIES = {
    "a label selector of three parts": "labelSelector=a=b=c",
    "a label selector that never closes": "labelSelector=a in (b",
    "a label selector of nothing but negation": "labelSelector=!!",
    "a label selector with a bad key": "labelSelector=a%20b%20c=d",
    "a label selector with a NUL": "labelSelector=a=%00",
    "a field selector of an unknown field": "fieldSelector=spec.colour=red",
    "a field selector without a value": "fieldSelector=metadata.name",
    "a field selector with a NUL": "fieldSelector=metadata.name=%00",
    "a limit that is no number": "limit=many",
    "a negative limit": "limit=-1",
    "a limit beyond 64 bits": f"limit={2**64}",
    "a time-out that is no number": "timeoutSeconds=soon",
    "a resourceVersion that is no number": "resourceVersion=abc",
    "a negative resourceVersion": "resourceVersion=-1",
    "a resourceVersion in other digits": "resourceVersion=%D9%A3",
    "a resourceVersion beyond 64 bits": f"resourceVersion={2**70}",
    "a continue token of letters": "continue=abc",
    "a continue token in other letters": "continue=%C3%A9",
    "a continue token of another shape": f"continue={base64.urlsafe_b64encode(b'{}').decode()}",
    "a continue token with a NUL": "continue=" + base64.urlsafe_b64encode(rb'[1,"\u0000","a"]').decode(),
    "a continue token with a lone surrogate": "continue=" + base64.urlsafe_b64encode(rb'[1,"\ud800","a"]').decode(),
    "a watch from a resourceVersion that is no number": "watch=1&resourceVersion=abc",
    "a watch of an unknown field": "watch=1&fieldSelector=spec.colour=red",
}
PATHS = {
    "an unknown resource": Sent(404, "GET", "/apis/batch/v1/namespaces/default/dreams"),
    "an unknown group": Sent(404, "GET", "/apis/dreams/v1/jobs"),
    "an unknown version": Sent(404, "GET", "/apis/batch/v9/jobs"),
    "an unknown subresource": Sent(404, "GET", f"{JOB}/dreams"),
    "a path that goes on too long": Sent(404, "GET", f"{JOB}/status/x/y"),
    "an object that is not there": Sent(404, "GET", f"{JOBS}/nothing"),
    "a name with a NUL": Sent(400, "GET", f"{JOBS}/a%00b"),
    "a name that is no UTF-8": Sent(404, "GET", f"{JOBS}/%ff%fe"),
    "an endless name": Sent(404, "GET", f"{JOBS}/{'a' * 5000}"),
    "a namespace with a NUL": Sent(400, "POST", "/apis/batch/v1/namespaces/a%00b/jobs", job()),
    "a namespace that is not there": Sent(404, "POST", "/apis/batch/v1/namespaces/nowhere/jobs", job()),
    "the log of a pod that is not there": Sent(404, "GET", f"{PODS}/nothing/log"),
    "PUT of a collection": Sent(405, "PUT", JOBS, job()),
    "PATCH of a collection": Sent(405, "PATCH", JOBS, b"{}", MERGE),
    "POST of an object": Sent(405, "POST", JOB, job()),
    "OPTIONS": Sent(405, "OPTIONS", JOB),
    "PUT of another name": Sent(400, "PUT", JOB, job()),
    "PUT of an object that is not there": Sent(404, "PUT", f"{JOBS}/bad", job()),
    "PUT of nothing": Sent(400, "PUT", JOB),
    "an answer in HTML": Sent(406, "GET", JOB, accept="text/html"),
    "a binding to nowhere": Sent(400, "POST", f"{PODS}/nothing/binding", b"{}"),
    "a binding that is an array": Sent(400, "POST", f"{PODS}/nothing/binding", b"[]"),
    "a binding to a number": Sent(400, "POST", f"{PODS}/nothing/binding", b'{"target":7}'),
    "a binding to an object": Sent(400, "POST", f"{PODS}/nothing/binding", b'{"target":{"name":{}}}'),
    "options that are an array": Sent(400, "DELETE", JOB, b"[1]"),
    "options of the wrong types": Sent(400, "DELETE", JOB, b'{"gracePeriodSeconds":"soon"}'),
    "an unknown propagation": Sent(422, "DELETE", JOB, b'{"propagationPolicy":"Sideways"}'),
    "another UID in the precondition": Sent(409, "DELETE", JOB, b'{"preconditions":{"uid":"other"}}'),
    "an unknown dry run": Sent(422, "DELETE", f"{JOB}?dryRun=Some"),
    "an unknown field validation": Sent(422, "POST", f"{JOBS}?fieldValidation=Perhaps", job()),
    "statuses that are none": Sent(403, "POST", "/apis/agents.jobplane.dev/v1/nodes/-/statuses", b"[]"),
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_a_body_that_is_no_job_is_a_bad_request(client: httpx.Client, body: bytes) -> None:
    refused(client, Sent(400, "POST", JOBS, body))


@pytest.mark.parametrize("body", UNPROCESSABLE.values(), ids=UNPROCESSABLE)
def test_a_job_that_makes_no_sense_is_invalid(client: httpx.Client, body: bytes) -> None:
    refused(client, Sent(422, "POST", JOBS, body))


@pytest.mark.parametrize("body", HUGE.values(), ids=HUGE)
def test_a_huge_body_is_too_large(client: httpx.Client, body: bytes) -> None:
    refused(client, Sent(413, "POST", JOBS, body))


@pytest.mark.parametrize("sent", OTHER_BODIES.values(), ids=OTHER_BODIES)
def test_another_kind_of_body_is_refused(client: httpx.Client, sent: Sent) -> None:
    refused(client, sent)


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_a_list_does_not_take(client: httpx.Client, query: str) -> None:
    before = stored(client)
    answer = client.get(f"{JOBS}?{query}")
    assert answer.status_code in (400, 422), answer.text
    assert is_a_status(answer)
    assert stored(client) == before


@pytest.mark.parametrize("sent", PATHS.values(), ids=PATHS)
def test_a_request_is_refused_for(client: httpx.Client, sent: Sent) -> None:
    refused(client, sent)


def op(**fields: Any) -> bytes:
    return json.dumps([fields]).encode()


PATCHES = {
    "nothing": (400, MERGE, b""),
    "half an object": (400, MERGE, b"{"),
    "NaN": (400, MERGE, b'{"spec":{"parallelism":NaN}}'),
    "a NUL": (400, MERGE, rb'{"metadata":{"labels":{"a":"\u0000"}}}'),
    "a merge patch that is an array": (400, MERGE, b"[]"),
    "a merge patch that is null": (400, MERGE, b"null"),
    "a merge patch with a string for the spec": (400, MERGE, b'{"spec":"yes"}'),
    "a merge patch without a template": (422, MERGE, b'{"spec":{"template":null}}'),
    "a merge patch of a fixed field": (422, MERGE, b'{"spec":{"completionMode":"Indexed","completions":2}}'),
    "a merge patch of the name": (400, MERGE, b'{"metadata":{"name":"other"}}'),
    "a merge patch of the UID": (422, MERGE, b'{"metadata":{"uid":"other"}}'),
    "a merge patch of an old version": (409, MERGE, b'{"metadata":{"resourceVersion":"1"}}'),
    "a merge patch of no version": (409, MERGE, b'{"metadata":{"resourceVersion":"abc"}}'),
    "a merge patch that nests deeply": (400, MERGE, b'{"a":' * 10_000 + b"1" + b"}" * 10_000),
    "a strategic patch that is an array": (400, STRATEGIC, b"[]"),
    "a strategic patch with an unknown directive": (400, STRATEGIC, b'{"spec":{"$patch":"explode"}}'),
    "a strategic patch of a list by something else": (
        400, STRATEGIC, b'{"spec":{"template":{"spec":{"containers":"none"}}}}'),
    "a strategic patch of containers without names": (
        400, STRATEGIC, b'{"spec":{"template":{"spec":{"containers":[{"image":"x"}]}}}}'),
    "a strategic patch of containers that are numbers": (
        422, STRATEGIC, b'{"spec":{"template":{"spec":{"containers":[1]}}}}'),
    "a strategic patch that deletes from no list": (
        400, STRATEGIC, b'{"metadata":{"$deleteFromPrimitiveList/finalizers":7}}'),
    "a strategic patch that orders no list": (
        400, STRATEGIC, b'{"spec":{"template":{"spec":{"$setElementOrder/containers":7}}}}'),
    "a JSON patch that is an object": (400, JSON_PATCH, b"{}"),
    "a JSON patch of numbers": (400, JSON_PATCH, b"[1]"),
    "a JSON patch without an operation": (422, JSON_PATCH, op(path="/spec")),
    "a JSON patch with an unknown operation": (422, JSON_PATCH, op(op="explode", path="/spec")),
    "a JSON patch without a path": (422, JSON_PATCH, op(op="remove")),
    "a JSON patch with a number for a path": (422, JSON_PATCH, op(op="remove", path=1)),
    "a JSON patch that removes what is not there": (422, JSON_PATCH, op(op="remove", path="/spec/colour")),
    "a JSON patch that goes through a number": (422, JSON_PATCH, op(op="add", path="/spec/parallelism/x", value=1)),
    "a JSON patch of a place that is none": (
        422, JSON_PATCH, op(op="replace", path="/spec/template/spec/containers/9", value={})),
    "a JSON patch of a negative place": (
        422, JSON_PATCH, op(op="remove", path="/spec/template/spec/containers/-1")),
    "a JSON patch whose test fails": (422, JSON_PATCH, op(op="test", path="/metadata/name", value="other")),
    "a JSON patch that removes everything": (422, JSON_PATCH, op(op="remove", path="")),
    "a JSON patch that makes it a number": (422, JSON_PATCH, op(op="replace", path="", value=7)),
    "a JSON patch of too many operations": (
        413, JSON_PATCH, json.dumps([{"op": "test", "path": "/kind", "value": "Job"}] * 10_001).encode()),
    "a JSON patch that doubles itself": (
        422, JSON_PATCH, json.dumps([
            {"op": "add", "path": "/metadata/annotations", "value": {"a": "b" * 1000}},
            *({"op": "copy", "from": "/metadata", "path": f"/metadata/annotations/{n}"} for n in range(40)),
        ]).encode()),
    "plain JSON": (415, JSON, b"{}"),
    "YAML": (415, YAML, b"a: b"),
    "no manager of an apply": (422, APPLY, b"a: b"),
}  # fmt: skip


@pytest.mark.parametrize(("code", "content_type", "body"), PATCHES.values(), ids=PATCHES)
def test_a_patch_is_refused_for(client: httpx.Client, code: int, content_type: str, body: bytes) -> None:
    refused(client, Sent(code, "PATCH", JOB, body, content_type))


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer nonsense", "Basic YTpi", "Bearer é", "nonsense"])
@pytest.mark.parametrize(("method", "path"), [("GET", JOBS), ("POST", JOBS), ("DELETE", JOB), ("GET", "/version")])
def test_nobody_gets_in_without_a_token(cluster: Cluster, header: str, method: str, path: str) -> None:
    headers = {"Authorization": header.encode()} if header else {}
    with cluster.client(token="") as client:
        answer = client.request(method, path, headers=headers, content=job() if method == "POST" else None)
    assert answer.status_code == 401
    assert is_a_status(answer)
    assert answer.headers["WWW-Authenticate"] == "Bearer"


NODE_MAY_NOT = {
    "read Jobs": ("GET", JOBS, None),
    "create a Job": ("POST", JOBS, a_job("bad", "true")),
    "delete a Job": ("DELETE", JOB, None),
    "patch a Job's status": ("PATCH", f"{JOB}/status", {"status": {"succeeded": 1}}),
    "read all pods": ("GET", "/api/v1/pods", None),
    "watch all pods": ("GET", "/api/v1/pods?watch=1", None),
    "create a pod": ("POST", PODS, {"metadata": {"name": "bad"}, "spec": {"containers": []}}),
    "delete a pod": ("DELETE", f"{PODS}/any", None),
    "bind a pod": ("POST", f"{PODS}/any/binding", {"target": {"name": "mine"}}),
    "read a log": ("GET", f"{PODS}/any/log", None),
    "read secrets": ("GET", f"/api/v1/namespaces/{NAMESPACE}/secrets", None),
    "read a secret that no pod of its needs": ("GET", f"/api/v1/namespaces/{NAMESPACE}/secrets/any", None),
    "create a namespace": ("POST", "/api/v1/namespaces", {"metadata": {"name": "bad"}}),
    "delete a node": ("DELETE", "/api/v1/nodes/any", None),
    "read another node": ("GET", "/api/v1/nodes/any", None),
    "create another node": ("POST", "/api/v1/nodes", {"metadata": {"name": "ghost"}}),
    "read another node's pods": ("GET", "/api/v1/pods?fieldSelector=spec.nodeName=any", None),
    "report for another node": ("POST", "/apis/agents.jobplane.dev/v1/nodes/any/statuses", {"items": []}),
}


@pytest.mark.parametrize(("method", "path", "body"), NODE_MAY_NOT.values(), ids=NODE_MAY_NOT)
def test_an_agent_may_not(cluster: Cluster, client: httpx.Client, method: str, path: str, body: Any) -> None:
    before = stored(client)
    headers = {"Content-Type": MERGE} if method == "PATCH" else {}
    with cluster.client(token=(cluster.folder / "agent.token").read_text().strip()) as agent:
        answer = agent.request(method, path, json=body, headers=headers)
    assert answer.status_code == 403, answer.text
    assert is_a_status(answer)
    assert stored(client) == before


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{", b'{"items":[1]}', b'{"items":[{"uid":7}]}', b'{"items":[{"name":"\\u0000"}]}', b"\xff"]
)
@pytest.mark.parametrize("action", ["statuses", "logs"])
def test_an_agent_s_report_that_is_none_is_a_bad_request(cluster: Cluster, action: str, body: bytes) -> None:
    with cluster.client(token=(cluster.folder / "agent.token").read_text().strip()) as agent:
        answer = agent.post(f"/apis/agents.jobplane.dev/v1/nodes/{os.uname().nodename.lower()}/{action}", content=body)
    assert answer.status_code == 400
    assert is_a_status(answer)


SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20), st.text("\0\ud800é%/.", max_size=5)
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
)
RICH = a_job(
    "rich",
    "true",
    suspend=True,
    completions=3,
    parallelism=2,
    completionMode="Indexed",
    backoffLimitPerIndex=1,
    podFailurePolicy={"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [3]}}]},
    successPolicy={"rules": [{"succeededIndexes": "0-1", "succeededCount": 1}]},
    pod={"tolerations": [{"key": "a", "operator": "Exists"}], "volumes": [{"name": "v", "emptyDir": {}}]},
)


def places(document: Any, here: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to everything in a document."""
    if here:
        yield here
    steps = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    for step, inner in steps:
        yield from places(inner, (*here, step))


@st.composite
def mutants(draw: st.DrawFn) -> dict[str, Any]:
    """A Job of which up to three parts are replaced by anything, taken away or joined by something new."""
    document = copy.deepcopy(RICH)
    for _ in range(draw(st.integers(1, 3))):
        *inwards, last = draw(st.sampled_from(list(places(document))))
        place: Any = document
        for step in inwards:
            place = place[step]
        how = draw(st.sampled_from(["replace", "remove", "join"]))
        if how == "remove" and len(document) > 1:
            del place[last]
        elif how == "join" and isinstance(place, dict):
            place[draw(st.text(max_size=8))] = draw(VALUES)
        else:
            place[last] = draw(VALUES)
    return document


RELAXED = settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))


@RELAXED
@given(document=mutants(), validation=st.sampled_from(["Strict", "Warn", "Ignore"]))
def test_no_mutant_of_a_job_breaks_the_server(client: httpx.Client, document: Any, validation: str) -> None:
    body = json.dumps(document).encode()
    answer = client.post(
        f"{JOBS}?dryRun=All&fieldValidation={validation}", content=body, headers={"Content-Type": JSON}
    )
    assert answer.status_code == 201 or (answer.status_code < 500 and is_a_status(answer)), answer.text


@settings(RELAXED, max_examples=100)
@given(patch=VALUES | mutants(), content_type=st.sampled_from([MERGE, STRATEGIC, JSON_PATCH]))
def test_no_patch_breaks_the_server(client: httpx.Client, patch: Any, content_type: str) -> None:
    headers = {"Content-Type": content_type}
    answer = client.patch(f"{JOB}?dryRun=All", content=json.dumps(patch).encode(), headers=headers)
    assert answer.status_code == 200 or (answer.status_code < 500 and is_a_status(answer)), answer.text


def test_the_server_is_alive_after_all_of_that(cluster: Cluster, client: httpx.Client) -> None:
    assert client.get("/readyz").text == "ok"
    assert cluster.surprises() == ""
    assert client.post(JOBS, json=a_job("good", "true", suspend=True)).status_code == 201
    assert client.delete(f"{JOBS}/good").status_code == 200

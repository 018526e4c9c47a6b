"""Schemathesis against the running API: it reads the published documents, and tries what they allow and what they do not.

JOBPLANE_FUZZ_REQUESTS says how many requests (all fuzzers together). Watches are left out: they answer without end.
"""

import json
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import FailureGroup
from schemathesis.core.result import Ok
from schemathesis.schemas import APIOperation
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from app.kinds import KINDS
from app.machinery.base import Kind
from tests.fuzz.target import REQUESTS, SEED, SHARES, Target
from tests.fuzz.world import World

DOCUMENTS = sorted((Path(__file__).parents[2] / "openapi").glob("*.json"))
OPERATIONS = 297  # of all documents, about
SHARE = int(REQUESTS * SHARES["schemathesis"])
EXAMPLES = max(2, SHARE // OPERATIONS)  # the first is the simplest there is, and never another
STRIDE = max(1, round(EXAMPLES * OPERATIONS / SHARE))  # with few requests, only every so many operations have a turn
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
ENDLESS = {"watch", "follow"}
METHODS = ("get", "put", "post", "delete", "options", "head", "patch")


@schemathesis.serializer("application/apply-patch+yaml")
def as_json(_: schemathesis.SerializationContext, value: Any) -> bytes:
    """JSON is YAML, too."""
    return json.dumps(value).encode()


def published(path: Path) -> dict[str, Any]:
    """A document without what Schemathesis cannot send, or would wait for."""
    document: dict[str, Any] = json.loads(path.read_text())
    for place in document["paths"].values():
        for operation in (place, *(place[method] for method in METHODS if method in place)):
            kept = [each for each in operation.get("parameters", ()) if each.get("name") not in ENDLESS]
            operation["parameters"] = kept
            operation.get("requestBody", {}).get("content", {}).pop("application/vnd.kubernetes.protobuf", None)
    return document


def operations(path: Path) -> Iterator[APIOperation[Any, Any, Any, Any]]:
    for found in schemathesis.openapi.from_dict(published(path)).get_all_operations():
        assert isinstance(found, Ok), found
        if "/proxy" not in found.ok().path:  # what answers there is a pod
            yield found.ok()


class Scene:
    """A namespace with one object of every kind, which is made again whenever it has gone."""

    def __init__(self, target: Target, number: int) -> None:
        self.url = target.url
        self.session = requests.Session()
        self.session.headers["Authorization"] = f"Bearer {target.admin}"
        self._world = World(SEED, number)
        self.namespace = self._world.namespace
        self._turns = count()
        self._make("/api/v1/namespaces", {"metadata": {"name": self.namespace}})

    def prepare(self, case: Case[Any]) -> None:
        """Three times out of four, the path leads to what is there."""
        if next(self._turns) % 4 == 0:
            return
        for name, value in (("namespace", self.namespace), ("name", self.namespace)):
            if name in case.path_parameters:
                case.path_parameters[name] = value
        kind = next((each for each in KINDS if f"/{each.plural}/{{name}}" in case.operation.path), None)
        if kind:
            self._make_example(kind)

    def _make_example(self, kind: Kind) -> None:
        document = self._world.manifest(kind)
        document["metadata"]["name"] = self.namespace
        self._make(self._world.collection(kind), document)

    def _make(self, path: str, document: dict[str, Any]) -> None:
        self.session.post(f"{self.url}{path}", json=document)


@pytest.fixture
def scene(request: pytest.FixtureRequest, fuzzed: Target) -> Iterator[Scene]:
    made = Scene(fuzzed, 1_000 + DOCUMENTS.index(request.getfixturevalue("path")))
    yield made
    made.session.close()


@pytest.mark.timeout(300 + REQUESTS // 20)
@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.stem)
def test_the_server_keeps_to_its_document(path: Path, scene: Scene) -> None:
    chosen = islice(operations(path), SEED % STRIDE, None, STRIDE)
    failures = [failure for each in chosen for failure in tried(each, scene)]

    assert not failures, "\n\n".join(failures)


def tried(operation: APIOperation[Any, Any, Any, Any], scene: Scene) -> Iterator[str]:
    """What goes wrong with an operation."""
    fitting, wrong = map(operation.as_strategy, (GenerationMode.POSITIVE, GenerationMode.NEGATIVE))

    @seed(SEED)
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(fitting | wrong)
    def holds(case: Case[Any]) -> None:
        scene.prepare(case)
        query = case.query or {}
        if str(query.get("resourceVersion", "")).isdigit():  # from the future: that is waited for, and ends with a 504
            query["resourceVersion"] = "0"
        answer = case.call(base_url=scene.url, session=scene.session, timeout=30)
        case.validate_response(answer, checks=CHECKS)

    try:
        holds()
    except (Exception, FailureGroup) as error:  # which is a group of base exceptions
        yield f"{operation.label}: {error}"

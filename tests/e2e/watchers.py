"""Clients that go on while what they talk to is restarted: a watch that resumes, and kubectl, called again and again."""

import threading
import time
from collections import Counter
from types import TracebackType
from typing import Any, Self

import httpx
import msgspec

from tests.e2e.cluster import Cluster
from tests.e2e.kubectl import Kubectl

NODES = "/api/v1/nodes"
AGAIN_SECONDS = 0.2
SILENT_SECONDS = 60  # longer than a quiet node: its lease is no change of it, its status is one


class _Client(threading.Thread):
    """Runs while the context is open."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._over = threading.Event()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()
        self.join(SILENT_SECONDS)


class Watcher(_Client):
    """Watches a collection as a careful client does: from the last version seen, and lists again only after 410.

    events:   each that came, in order. broken: streams that did not end cleanly. refusals: by their code.
    relisted: how often it was told 410.
    """

    def __init__(self, cluster: Cluster, path: str) -> None:
        super().__init__()
        self.events: list[dict[str, Any]] = []
        self.broken: list[str] = []
        self.refusals: Counter[int] = Counter()
        self.relisted = 0
        self._cluster, self._path = cluster, path
        self._revision = ""

    def run(self) -> None:
        while not self._over.is_set():
            with self._cluster.client() as client:  # each stream over a connection of its own
                try:
                    self._follow(client)
                except httpx.TransportError as error:
                    self.broken.append(repr(error))
                    time.sleep(AGAIN_SECONDS)

    def _follow(self, client: httpx.Client) -> None:
        if not self._revision and not self._list(client):
            return
        query = {"watch": "1", "resourceVersion": self._revision, "allowWatchBookmarks": "1", "timeoutSeconds": "20"}
        with client.stream("GET", self._path, params=query, timeout=SILENT_SECONDS) as stream:
            if not stream.is_success:
                self._refused(stream.status_code)
                return
            for line in stream.iter_lines():
                self._take(msgspec.json.decode(line))
                if self._over.is_set():
                    return

    def _list(self, client: httpx.Client) -> bool:
        answer = client.get(self._path)
        if not answer.is_success:
            self._refused(answer.status_code)
            return False
        found = answer.json()
        self._revision = found["metadata"]["resourceVersion"]
        self.events += [{"type": "ADDED", "object": each} for each in found["items"]]
        return True

    def _refused(self, code: int) -> None:
        if code == 410:
            self._revision, self.relisted = "", self.relisted + 1
            return
        self.refusals[code] += 1
        time.sleep(AGAIN_SECONDS)

    def _take(self, event: dict[str, Any]) -> None:
        if event["type"] == "ERROR":
            self._refused(event["object"]["code"])
            return
        self._revision = event["object"]["metadata"]["resourceVersion"]
        if event["type"] != "BOOKMARK":
            self.events.append(event)

    def not_ready(self) -> list[str]:
        """Of nodes: each version of one that was gone, or whose condition Ready was not True."""
        return [
            f"{event['type']} {event['object']['metadata']['name']}: {found}"
            for event in self.events
            if (found := _readiness(event)) != "True"
        ]


def _readiness(event: dict[str, Any]) -> str:
    if event["type"] == "DELETED":
        return "deleted"
    conditions = event["object"]["status"].get("conditions", [])
    return next((each["status"] for each in conditions if each["type"] == "Ready"), "none")


class Caller(_Client):
    """Calls kubectl in a row: it makes a ConfigMap, reads it and deletes it. `failures` are what calls that failed have said."""

    def __init__(self, kubectl: Kubectl) -> None:
        super().__init__()
        self.calls = 0
        self.failures: list[str] = []
        self._kubectl = kubectl

    def run(self) -> None:
        number = 0
        while not self._over.is_set():
            number += 1
            for words in (("create", "configmap"), ("get", "configmap"), ("delete", "configmap")):
                self._call(*words, f"number-{number}")

    def _call(self, *words: str) -> None:
        self.calls += 1
        with self._kubectl.start(*words) as running:
            out, _ = running.communicate(timeout=SILENT_SECONDS)
        if running.returncode:
            self.failures.append(f"kubectl {' '.join(words)}: {out.strip()}")

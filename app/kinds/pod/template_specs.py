"""Template specs: pod templates that are alike share one spec, which is defaulted and judged once.

Of what schedules, pipelines and arrays create, thousands of Jobs have the same template. Kinds with a pod template fill in its
defaults by `TEMPLATE_SPECS.share`; `pod_validation` and `pod_warnings` ask it for what follows from a spec alone. A spec never
changes, so what was found out about an object stays true. Memory is bounded: large specs are not shared, and a full cache is
emptied. Threads may call it: where they meet, something is found out twice.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import msgspec

from app.kinds.pod.pod_defaults import default_pod_spec
from app.kinds.pod.pod_schema import PodSpec

T = TypeVar("T")
LARGEST = 8192  # bytes of JSON of the largest spec that is shared
MOST = 512
_encode = msgspec.json.Encoder().encode


class _Shared(NamedTuple):
    """A spec with its defaults, and what was found out about it, by the function that did."""

    spec: PodSpec
    facts: dict[Callable[[PodSpec], Any], Any]


class TemplateSpecs:
    """The specs of one process, by their JSON as it was sent, and by identity."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._by_json: dict[bytes, PodSpec] = {}
        self._shared: dict[int, _Shared] = {}

    def share(self, spec: PodSpec) -> PodSpec:
        """Return the spec with its defaults: one object for all that are alike, the same one if nothing is missing."""
        if self._find(spec) is not None:
            return spec
        json = _encode(spec)
        if len(json) > LARGEST:
            return default_pod_spec(spec)
        shared = self._by_json.get(json)
        if shared is None:
            shared = self._add(json, default_pod_spec(spec))
        return shared

    def ask(self, find: Callable[[PodSpec], T], spec: PodSpec) -> T:
        """Return what `find` returns for a spec. It is called once for a shared one."""
        shared = self._find(spec)
        if shared is None:
            return find(spec)
        if find not in shared.facts:
            shared.facts[find] = find(spec)
        found: T = shared.facts[find]
        return found

    def _find(self, spec: PodSpec) -> _Shared | None:
        shared = self._shared.get(id(spec))  # held here, so that no other object gets its identity
        return shared if shared is not None and shared.spec is spec else None

    def _add(self, json: bytes, spec: PodSpec) -> PodSpec:
        if len(self._by_json) >= self._most:
            self._by_json.clear()
            self._shared.clear()
        self._by_json[json] = spec
        self._shared[id(spec)] = _Shared(spec, {})
        return spec


TEMPLATE_SPECS = TemplateSpecs()

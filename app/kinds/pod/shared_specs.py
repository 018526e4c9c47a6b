"""Shared specs: pod templates that are alike have one spec, which is defaulted and validated once.

Schedules, pipelines and arrays create thousands of Jobs with the same template. Kinds with a pod template fill in its defaults by
`TEMPLATE_SPECS.share`. `pod_validation` and `pod_warnings` ask it for what follows from a spec alone; a spec never changes, so
the answer stays true. Memory is bounded: large specs are not shared, and a full cache is emptied. Threads may call it at the
same time: then a spec is defaulted or validated twice at worst.
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
    """A complete spec, and what each function has returned for it."""

    spec: PodSpec
    facts: dict[Callable[[PodSpec], Any], Any]


class SharedSpecs:
    """Specs of one process, by their JSON as it was sent, and by identity. `complete` fills in what a sent spec lacks."""

    def __init__(self, complete: Callable[[PodSpec], PodSpec], most: int = MOST) -> None:
        self._complete, self._most = complete, most
        self._by_json: dict[bytes, PodSpec] = {}
        self._shared: dict[int, _Shared] = {}

    def share(self, spec: PodSpec) -> PodSpec:
        """Return the complete spec: one object for all that are alike."""
        if self._find(spec) is not None:
            return spec
        json = _encode(spec)
        if len(json) > LARGEST:
            return self._complete(spec)
        shared = self._by_json.get(json)
        if shared is None:
            shared = self._add(json, self._complete(spec))
        return shared

    def ask(self, find: Callable[[PodSpec], T], spec: PodSpec) -> T:
        """Return what `find` returns for a spec. For a shared spec, `find` is called once."""
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


TEMPLATE_SPECS = SharedSpecs(default_pod_spec)

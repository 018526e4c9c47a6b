"""Shared specs: templates that are alike have one spec, with its defaults."""

from typing import Any

from app.kinds.pod.pod_defaults import default_pod_spec
from app.kinds.pod.pod_schema import PodSpec
from app.kinds.pod.shared_specs import LARGEST, SharedSpecs
from tests.kinds.pods import a_pod


def a_spec(**main: Any) -> PodSpec:
    return a_pod(main={"image": "busybox", **main}).spec


def test_templates_that_are_alike_share_one_spec_with_its_defaults() -> None:
    specs = SharedSpecs(default_pod_spec)
    first, second = specs.share(a_spec()), specs.share(a_spec())
    assert first == default_pod_spec(a_spec())
    assert second is first
    assert specs.share(first) is first
    assert specs.share(a_spec(command=["true"])) != first


def test_a_spec_with_all_its_defaults_is_shared_as_it_is() -> None:
    specs, complete = SharedSpecs(default_pod_spec), default_pod_spec(a_spec())
    assert specs.share(complete) is complete


def test_a_shared_spec_is_asked_about_once() -> None:
    specs = SharedSpecs(default_pod_spec)
    asked: list[PodSpec] = []

    def image(spec: PodSpec) -> str:
        asked.append(spec)
        return spec.containers[0].image

    def count(spec: PodSpec) -> int:
        return len(spec.containers)

    shared = specs.share(a_spec())
    assert [specs.ask(image, shared), specs.ask(image, specs.share(a_spec()))] == ["busybox", "busybox"]
    assert specs.ask(count, shared) == 1
    assert asked == [shared]
    equal = default_pod_spec(a_spec())
    assert specs.ask(image, equal) == specs.ask(image, equal) == "busybox"
    assert len(asked) == 3, "an equal spec that is not the shared object is asked about each time"


def test_large_specs_are_not_shared() -> None:
    specs = SharedSpecs(default_pod_spec)
    large = {"args": ["x" * LARGEST]}
    one, other = specs.share(a_spec(**large)), specs.share(a_spec(**large))
    assert one == other
    assert one is not other


def test_a_full_cache_is_emptied() -> None:
    specs = SharedSpecs(default_pod_spec, most=2)
    first = specs.share(a_spec(args=["0"]))
    *_, last = [specs.share(a_spec(args=[str(number)])) for number in range(1, 4)]
    assert specs.share(a_spec(args=["3"])) is last
    assert specs.share(a_spec(args=["0"])) is not first, "it was forgotten"

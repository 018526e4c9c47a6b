"""RuntimeClass admission: a new pod gets its class's overhead, node selector and tolerations, as by Kubernetes' plugin. Pure.

Called by `pod_admission`. Raises the 403, in Kubernetes' words.
"""

from collections.abc import Mapping

from msgspec.structs import replace

from app.kinds.core.runtimeclass import RuntimeClass, Scheduling
from app.kinds.pod.pod import Pod, PodSpec
from app.machinery.errors import forbidden_error

RuntimeClasses = Mapping[str, RuntimeClass]


def apply_runtime_class(pod: Pod, classes: RuntimeClasses, name: str) -> Pod:
    """`name` is the name of the pod in a refusal."""
    wanted = pod.spec.runtime_class_name
    if not wanted:
        return pod
    found = classes.get(wanted)
    if found is None:
        raise forbidden_error("pods", name, f'pod rejected: RuntimeClass "{wanted}" not found')
    spec = pod.spec
    if found.overhead is not None:
        if spec.overhead and spec.overhead != found.overhead.pod_fixed:
            why = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"
            raise forbidden_error("pods", name, why)
        spec = replace(spec, overhead=found.overhead.pod_fixed)
    if found.scheduling is not None:
        spec = _schedule(spec, found.scheduling, name)
    return pod if spec is pod.spec else replace(pod, spec=spec)


def _schedule(spec: PodSpec, wanted: Scheduling, name: str) -> PodSpec:
    for key, value in wanted.node_selector.items():
        if spec.node_selector.get(key, value) != value:
            why = (
                f"conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; "
                f"pod.spec.nodeSelector[{key}] = {spec.node_selector[key]}"
            )
            raise forbidden_error("pods", name, why)
    more = tuple(each for each in wanted.tolerations if each not in spec.tolerations)
    selector = {**wanted.node_selector, **spec.node_selector}
    return replace(spec, node_selector=selector, tolerations=(*spec.tolerations, *more))

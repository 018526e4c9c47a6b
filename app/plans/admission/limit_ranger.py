"""LimitRanger: defaults and limits for the resources of a new pod. Called by `pod_admission`."""

from collections.abc import Iterable, Iterator, Mapping

from msgspec.structs import replace

from app.kinds.core.limitrange import CONTAINER, POD, LimitRange, LimitRangeItem
from app.kinds.pod.container import Container, ResourceRequirements
from app.kinds.pod.pod import Pod
from app.machinery.base import Quantity
from app.machinery.quantity import canonical, compare, parse
from app.plans.admission.pod_resource_usage import effective_requests, limits, requests

ANNOTATION = "kubernetes.io/limit-ranger"
_NONE = ResourceRequirements()
_Amounts = Mapping[str, Quantity]


def apply_defaults(pod: Pod, ranges: Iterable[LimitRange]) -> Pod:
    """The pod with default requests and limits where its containers have none, and an annotation that lists them."""
    for each in ranges:
        pod = _apply_range(pod, each)
    return pod


def _apply_range(pod: Pod, limit_range: LimitRange) -> Pod:
    default: dict[str, Quantity] = {}
    request: dict[str, Quantity] = {}
    for item in limit_range.spec.limits:
        if item.type == CONTAINER:
            default |= item.default
            request |= item.default_request
    if not default and not request:
        return pod
    changes: list[str] = []
    spec = replace(
        pod.spec,
        containers=tuple(
            _apply_to_container(each, default, request, "container", changes) for each in pod.spec.containers
        ),
        init_containers=tuple(
            _apply_to_container(each, default, request, "init container", changes) for each in pod.spec.init_containers
        ),
    )
    if not changes:
        return pod
    annotations = {**pod.metadata.annotations, ANNOTATION: f"LimitRanger plugin set: {'; '.join(changes)}"}
    return replace(pod, metadata=replace(pod.metadata, annotations=annotations), spec=spec)


def _apply_to_container(
    container: Container, default: _Amounts, request: _Amounts, sort: str, changes: list[str]
) -> Container:
    resources = container.resources or _NONE
    requested = effective_requests(resources)
    new_requests = sorted(request.keys() - requested.keys())
    new_limits = sorted(default.keys() - resources.limits.keys())
    for names, what in ((new_requests, "request"), (new_limits, "limit")):
        if names:
            changes.append(f"{', '.join(names)} {what} for {sort} {container.name}")
    filled = replace(
        resources,
        requests={**requested, **{name: request[name] for name in new_requests}},
        limits={**resources.limits, **{name: default[name] for name in new_limits}},
    )
    return replace(container, resources=filled)


def find_violation(pod: Pod, ranges: Iterable[LimitRange]) -> str:
    """Return how the pod violates the first LimitRange that it violates; empty if it violates none."""
    for each in ranges:
        faults = [text for item in each.spec.limits for text in _violations(pod, item)]
        unique = list(dict.fromkeys(faults))
        if unique:
            return unique[0] if len(unique) == 1 else f"[{', '.join(unique)}]"
    return ""


def _violations(pod: Pod, item: LimitRangeItem) -> Iterator[str]:
    if item.type == CONTAINER:
        for container in (*pod.spec.containers, *pod.spec.init_containers):
            resources = container.resources or _NONE
            yield from _check_bounds(item, effective_requests(resources), resources.limits)
    elif item.type == POD:
        yield from _check_bounds(item, requests(pod, overhead=False), limits(pod, overhead=False))


def _check_bounds(item: LimitRangeItem, request: _Amounts, limit: _Amounts) -> Iterator[str]:
    for name, least in item.min.items():
        yield from _check_min(
            f"minimum {name} usage per {item.type} is {least}", least, request.get(name), limit.get(name)
        )
    for name, most in item.max.items():
        yield from _check_max(
            f"maximum {name} usage per {item.type} is {most}", most, request.get(name), limit.get(name)
        )
    for name, ratio in item.max_limit_request_ratio.items():
        text = f"{name} max limit to request ratio per {item.type} is {ratio}"
        yield from _check_ratio(text, ratio, request.get(name), limit.get(name))


def _check_min(text: str, least: Quantity, request: Quantity | None, limit: Quantity | None) -> Iterator[str]:
    if request is None:
        yield f"{text}.  No request is specified"
    elif compare(request, least) < 0:
        yield f"{text}, but request is {canonical(request)}"
    elif limit is not None and compare(limit, least) < 0:
        yield f"{text}, but limit is {canonical(limit)}"


def _check_max(text: str, most: Quantity, request: Quantity | None, limit: Quantity | None) -> Iterator[str]:
    if limit is None:
        yield f"{text}.  No limit is specified"
    elif compare(limit, most) > 0:
        yield f"{text}, but limit is {canonical(limit)}"
    elif request is not None and compare(request, most) > 0:
        yield f"{text}, but request is {canonical(request)}"


def _check_ratio(text: str, ratio: Quantity, request: Quantity | None, limit: Quantity | None) -> Iterator[str]:
    if not request or not compare(request, 0):
        yield f"{text}, but no request is specified or request is 0"
    elif not limit or not compare(limit, 0):
        yield f"{text}, but no limit is specified or limit is 0"
    elif parse(limit) > parse(ratio) * parse(request):
        yield f"{text}, but provided ratio is {float(parse(limit) / parse(request)):f}"

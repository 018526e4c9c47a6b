"""LimitRanger: what LimitRanges give to a new pod, and what they refuse. Part of `pod_admission`."""

from collections.abc import Iterable, Iterator, Mapping

from msgspec.structs import replace

from app.kinds.core.limitrange import CONTAINER, POD, LimitRange, LimitRangeItem
from app.kinds.pod.container import Container, ResourceRequirements
from app.kinds.pod.pod import Pod
from app.machinery.base import Quantity
from app.machinery.quantity import canonical, compare, parse
from app.plans.admission.pod_resource_usage import asked, limits, requests

ANNOTATION = "kubernetes.io/limit-ranger"
_NONE = ResourceRequirements()
_Amounts = Mapping[str, Quantity]


def with_defaults(pod: Pod, ranges: Iterable[LimitRange]) -> Pod:
    """The pod with the requests and limits that its containers leave open, and an annotation that says which."""
    for each in ranges:
        pod = _with_defaults(pod, each)
    return pod


def _with_defaults(pod: Pod, limit_range: LimitRange) -> Pod:
    default: dict[str, Quantity] = {}
    request: dict[str, Quantity] = {}
    for item in limit_range.spec.limits:
        if item.type == CONTAINER:
            default |= item.default
            request |= item.default_request
    if not default and not request:
        return pod
    told: list[str] = []
    spec = replace(
        pod.spec,
        containers=tuple(_filled(each, default, request, "container", told) for each in pod.spec.containers),
        init_containers=tuple(
            _filled(each, default, request, "init container", told) for each in pod.spec.init_containers
        ),
    )
    if not told:
        return pod
    annotations = {**pod.metadata.annotations, ANNOTATION: f"LimitRanger plugin set: {'; '.join(told)}"}
    return replace(pod, metadata=replace(pod.metadata, annotations=annotations), spec=spec)


def _filled(container: Container, default: _Amounts, request: _Amounts, sort: str, told: list[str]) -> Container:
    resources = container.resources or _NONE
    requested = asked(resources)
    new_requests = sorted(request.keys() - requested.keys())
    new_limits = sorted(default.keys() - resources.limits.keys())
    for names, what in ((new_requests, "request"), (new_limits, "limit")):
        if names:
            told.append(f"{', '.join(names)} {what} for {sort} {container.name}")
    filled = replace(
        resources,
        requests={**requested, **{name: request[name] for name in new_requests}},
        limits={**resources.limits, **{name: default[name] for name in new_limits}},
    )
    return replace(container, resources=filled)


def fault(pod: Pod, ranges: Iterable[LimitRange]) -> str:
    """What is wrong with the pod in the eyes of the first limit range that it breaks; empty if it breaks none."""
    for each in ranges:
        faults = [text for item in each.spec.limits for text in _faults(pod, item)]
        unique = list(dict.fromkeys(faults))
        if unique:
            return unique[0] if len(unique) == 1 else f"[{', '.join(unique)}]"
    return ""


def _faults(pod: Pod, item: LimitRangeItem) -> Iterator[str]:
    if item.type == CONTAINER:
        for container in (*pod.spec.containers, *pod.spec.init_containers):
            resources = container.resources or _NONE
            yield from _out_of_bounds(item, asked(resources), resources.limits)
    elif item.type == POD:
        yield from _out_of_bounds(item, requests(pod, overhead=False), limits(pod, overhead=False))


def _out_of_bounds(item: LimitRangeItem, request: _Amounts, limit: _Amounts) -> Iterator[str]:
    for name, least in item.min.items():
        yield from _too_small(
            f"minimum {name} usage per {item.type} is {least}", least, request.get(name), limit.get(name)
        )
    for name, most in item.max.items():
        yield from _too_large(
            f"maximum {name} usage per {item.type} is {most}", most, request.get(name), limit.get(name)
        )
    for name, ratio in item.max_limit_request_ratio.items():
        text = f"{name} max limit to request ratio per {item.type} is {ratio}"
        yield from _too_far(text, ratio, request.get(name), limit.get(name))


def _too_small(text: str, least: Quantity, request: Quantity | None, limit: Quantity | None) -> Iterator[str]:
    if request is None:
        yield f"{text}.  No request is specified"
    elif compare(request, least) < 0:
        yield f"{text}, but request is {canonical(request)}"
    elif limit is not None and compare(limit, least) < 0:
        yield f"{text}, but limit is {canonical(limit)}"


def _too_large(text: str, most: Quantity, request: Quantity | None, limit: Quantity | None) -> Iterator[str]:
    if limit is None:
        yield f"{text}.  No limit is specified"
    elif compare(limit, most) > 0:
        yield f"{text}, but limit is {canonical(limit)}"
    elif request is not None and compare(request, most) > 0:
        yield f"{text}, but request is {canonical(request)}"


def _too_far(text: str, ratio: Quantity, request: Quantity | None, limit: Quantity | None) -> Iterator[str]:
    if not request or not compare(request, 0):
        yield f"{text}, but no request is specified or request is 0"
    elif not limit or not compare(limit, 0):
        yield f"{text}, but no limit is specified or limit is 0"
    elif parse(limit) > parse(ratio) * parse(request):
        yield f"{text}, but provided ratio is {float(parse(limit) / parse(request)):f}"

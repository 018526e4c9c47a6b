"""ResourceQuota admission: what objects cost, which quotas they are charged to, and whether they fit. Pure.

Called by `pod_admission`, which charges a new object in the write set that creates it; by the Job controller, for how many
of its pods fit; and by the quota controller, which recounts. Sums are exact. Rules and messages are Kubernetes'.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec
from msgspec.structs import replace

from app.kinds.core.resourcequota import (
    BEST_EFFORT,
    CROSS_NAMESPACE,
    NOT_BEST_EFFORT,
    NOT_TERMINATING,
    PRIORITY_CLASS,
    TERMINATING,
    ResourceQuota,
    ScopedResourceSelectorRequirement,
)
from app.kinds.core.service import Service
from app.kinds.pod.affinity import PodAffinity, PodAffinityTerm, PodAntiAffinity
from app.kinds.pod.container import Container
from app.kinds.pod.pod import Pod, is_terminal, qos_class
from app.kinds.storage.persistentvolumeclaim import PersistentVolumeClaim, class_name, requested
from app.machinery.base import Object, Quantity
from app.machinery.errors import ApiError, forbidden_error
from app.machinery.quantity import add, compare, parse
from app.machinery.resource_names import COMPUTE, HUGEPAGES, LIMITS, REQUESTS, is_extended, is_hugepages, is_native
from app.plans.admission import pod_resource_usage
from app.plans.admission.refusals import EXCEEDED

Amounts = Mapping[str, Quantity]

COUNT = "count/"
UNCOUNTED = frozenset({"events", "events.events.k8s.io"})
_ALIASES = frozenset(
    {"configmaps", "resourcequotas", "replicationcontrollers", "secrets", "services", "persistentvolumeclaims"}
)
_POD_RESOURCES = frozenset(
    ("count/pods", "pods", *COMPUTE, *(REQUESTS + name for name in COMPUTE), *(LIMITS + name for name in COMPUTE))
)
REQUESTS_STORAGE, CLAIMS, OF_CLASS = "requests.storage", "persistentvolumeclaims", ".storageclass.storage.k8s.io/"
SERVICES, NODE_PORTS, LOAD_BALANCERS = "services", "services.nodeports", "services.loadbalancers"
_OTHER_RESOURCES = _ALIASES | {NODE_PORTS, LOAD_BALANCERS, REQUESTS_STORAGE}
_MUST_BE_SPECIFIED = frozenset({"cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"})


class Cost(msgspec.Struct, frozen=True):
    """What an object costs; equal for all similar pods. `scopes` is None for an object that is not a pod."""

    usage: tuple[tuple[str, Quantity], ...]
    scopes: frozenset[str] | None = None
    priority_class: str = ""
    until: datetime | None = None  # after this, only its existence counts

    def at(self, now: datetime | None) -> Amounts:
        """Return what it costs now. None: it is created now."""
        if self.until is not None and now is not None and now > self.until:
            return {name: each for name, each in self.usage if name.startswith(COUNT)}
        return dict(self.usage)


# --- cost


def cost(resource: str, obj: Object) -> Cost:
    if isinstance(obj, Pod):
        return cost_of_pod(obj)
    counts = tuple((name, "1") for name in count_names(resource))
    return Cost((*counts, *measured_usage(obj).items()))


def measured_usage(obj: Object) -> dict[str, Quantity]:
    """What an object that is no pod uses beside its number."""
    if isinstance(obj, PersistentVolumeClaim):
        return storage_usage(obj)
    return _service_usage(obj) if isinstance(obj, Service) else {}


def _service_usage(service: Service) -> dict[str, Quantity]:
    """A load balancer has a node port for each port, unless it goes without; then it has those that are named."""
    spec = service.spec
    if spec.type == "NodePort":
        return {NODE_PORTS: str(len(spec.ports))}
    if spec.type != "LoadBalancer":
        return {}
    with_node_ports = spec.allocate_load_balancer_node_ports is not False
    node_ports = sum(with_node_ports or bool(port.node_port) for port in spec.ports)
    return {NODE_PORTS: str(node_ports), LOAD_BALANCERS: "1"}


def storage_usage(claim: PersistentVolumeClaim) -> dict[str, Quantity]:
    """What a claim uses beside its number: storage, and both of its class."""
    usage: dict[str, Quantity] = {REQUESTS_STORAGE: requested(claim)}
    if name := class_name(claim):
        usage |= {f"{name}{OF_CLASS}{REQUESTS_STORAGE}": requested(claim), f"{name}{OF_CLASS}{CLAIMS}": "1"}
    return usage


def measures(quota: ResourceQuota, resource: str) -> bool:
    """Return whether it takes more than counting the objects of this resource to recount the quota."""
    if resource == CLAIMS:
        return any(name == REQUESTS_STORAGE or OF_CLASS in name for name in quota.spec.hard)
    return resource == SERVICES and not quota.spec.hard.keys().isdisjoint((NODE_PORTS, LOAD_BALANCERS))


def count_names(resource: str) -> tuple[str, ...]:
    """The names under which quotas count the objects of a kind other than pods."""
    if resource in UNCOUNTED:
        return ()
    return (COUNT + resource, resource) if resource in _ALIASES else (COUNT + resource,)


def cost_of_pod(pod: Pod) -> Cost:
    """A pod that has ended counts only as an object, and so does one whose deletion grace period is over."""
    usage = {} if is_terminal(pod) else _usage(pod_resource_usage.requests(pod), pod_resource_usage.limits(pod))
    meta, until = pod.metadata, None
    if meta.deletion_timestamp is not None and meta.deletion_grace_period_seconds is not None and usage:
        until = meta.deletion_timestamp + timedelta(seconds=meta.deletion_grace_period_seconds)
    return Cost((("count/pods", "1"), *usage.items()), frozenset(_scopes(pod)), pod.spec.priority_class_name, until)


def _usage(requests: Amounts, limits: Amounts) -> dict[str, Quantity]:
    usage: dict[str, Quantity] = {"pods": "1"}
    for name in COMPUTE:
        if name in requests:
            usage[name] = usage[REQUESTS + name] = requests[name]
        if name in limits:
            usage[LIMITS + name] = limits[name]
    for name, amount in requests.items():
        if is_hugepages(name):
            usage[name] = amount
        if is_hugepages(name) or is_extended(name):
            usage[REQUESTS + name] = amount
    return usage


def _scopes(pod: Pod) -> Iterator[str]:
    deadline = pod.spec.active_deadline_seconds
    yield NOT_TERMINATING if deadline is None or deadline < 0 else TERMINATING
    yield BEST_EFFORT if qos_class(pod.spec) == "BestEffort" else NOT_BEST_EFFORT
    if _names_other_namespaces(pod):
        yield CROSS_NAMESPACE


def _names_other_namespaces(pod: Pod) -> bool:
    """Return whether its affinity selects pods of other namespaces."""
    affinity = pod.spec.affinity
    if affinity is None:
        return False
    near = affinity.pod_affinity or PodAffinity()
    far = affinity.pod_anti_affinity or PodAntiAffinity()
    terms = (*_terms(near), *_terms(far))
    return any(term.namespaces or term.namespace_selector is not None for term in terms)


def _terms(side: PodAffinity | PodAntiAffinity) -> Iterator[PodAffinityTerm]:
    yield from side.required_during_scheduling_ignored_during_execution
    for preferred in side.preferred_during_scheduling_ignored_during_execution:
        if preferred.pod_affinity_term:
            yield preferred.pod_affinity_term


# --- matching quotas


def covers(quota: ResourceQuota, each: Cost) -> bool:
    """Return whether the object is in all scopes of the quota."""
    return all(_matches(demand, each) for demand in _scope_requirements(quota))


def _scope_requirements(quota: ResourceQuota) -> Iterator[ScopedResourceSelectorRequirement]:
    for scope in quota.spec.scopes:
        yield ScopedResourceSelectorRequirement(scope_name=scope, operator="Exists")
    if quota.spec.scope_selector:
        yield from quota.spec.scope_selector.match_expressions


def _matches(demand: ScopedResourceSelectorRequirement, each: Cost) -> bool:
    if each.scopes is None:
        return False
    if demand.scope_name != PRIORITY_CLASS:
        return demand.scope_name in each.scopes
    named = each.priority_class != ""
    if demand.operator in ("Exists", "DoesNotExist"):
        return named is (demand.operator == "Exists")
    return (named and each.priority_class in demand.values) is (demand.operator == "In")


def is_pod_resource(name: str) -> bool:
    """Return whether pods use this resource."""
    if name in _POD_RESOURCES or name.startswith((HUGEPAGES, REQUESTS + HUGEPAGES)):
        return True
    return not is_native(name) and name.startswith(REQUESTS)


def is_known(name: str) -> bool:
    """Return whether this server can count the use of this resource: that of any other stays unknown."""
    return is_pod_resource(name) or name in _OTHER_RESOURCES or name.startswith(COUNT) or OF_CLASS in name


def _limited_resources(quota: ResourceQuota, each: Cost) -> list[str]:
    """The resources in the quota that such an object uses."""
    if each.scopes is not None:
        return sorted(filter(is_pod_resource, quota.status.hard))
    return sorted(name for name, _ in each.usage if name in quota.status.hard)


def matching_quotas(quotas: Iterable[ResourceQuota], each: Cost) -> list[ResourceQuota]:
    return [quota for quota in quotas if _limited_resources(quota, each) and covers(quota, each)]


# --- admission


def charge(quotas: Sequence[ResourceQuota], resource: str, obj: Object) -> list[tuple[ResourceQuota, ResourceQuota]]:
    """The quotas to charge, each without and with the object. Raises the 403 if the object does not fit."""
    each = cost(resource, obj)
    concerns = matching_quotas(quotas, each)
    check_specified(concerns, each, resource, obj)
    if error := find_exceeded(concerns, each, resource, obj.metadata.name):
        raise error
    return add_usage(concerns, each)


def check_specified(quotas: Iterable[ResourceQuota], each: Cost, resource: str, obj: Object) -> None:
    """Raises the 403 of a quota by which the object cannot be counted."""
    for quota in quotas:
        if fault := _find_fault(quota, each, obj):
            raise forbidden_error(resource, obj.metadata.name, fault)


def _find_fault(quota: ResourceQuota, each: Cost, obj: Object) -> str:
    """Return why the object cannot be counted by a quota."""
    limited, name = _limited_resources(quota, each), quota.metadata.name
    missing = _find_unspecified(obj, _MUST_BE_SPECIFIED.intersection(limited)) if isinstance(obj, Pod) else ""
    if missing:
        return f"failed quota: {name}: must specify {missing}"
    if any(resource not in quota.status.used for resource in limited):
        return f"status unknown for quota: {name}, resources: {','.join(limited)}"
    return ""


def _find_unspecified(pod: Pod, needed: Iterable[str]) -> str:
    """Requests and limits that a quota on CPU or memory demands and containers lack: `limits.cpu for: main,side`."""
    if pod.spec.resources:
        return ""
    containers = (*pod.spec.containers, *pod.spec.init_containers)
    lacking = {
        name: [each.name for each in containers if name not in _specified_amounts(each)] for name in sorted(needed)
    }
    return "; ".join(f"{name} for: {','.join(sorted(names))}" for name, names in lacking.items() if names)


def _specified_amounts(container: Container) -> Amounts:
    resources = container.resources
    return _usage(pod_resource_usage.effective_requests(resources), resources.limits) if resources else {}


def find_exceeded(quotas: Iterable[ResourceQuota], each: Cost, resource: str, name: str) -> ApiError | None:
    """The refusal by the first quota that has less left."""
    for quota in quotas:
        hard, used = quota.status.hard, quota.status.used
        wanted = _limited_usage(each.at(None), hard)
        over = [key for key, amount in wanted.items() if compare(add(used.get(key, 0), amount), hard[key]) > 0]
        if over:
            requested, taken, limit = (_format_amounts(amounts, over) for amounts in (wanted, used, hard))
            why = f"{EXCEEDED}{quota.metadata.name}, requested: {requested}, used: {taken}, limited: {limit}"
            return forbidden_error(resource, name, why)
    return None


def find_exceeded_by_growth(
    quotas: Iterable[ResourceQuota], claim: PersistentVolumeClaim, old: PersistentVolumeClaim
) -> ApiError | None:
    """The refusal of a claim's expansion by the first quota that has less left than it grows by."""
    before = storage_usage(old)
    grown = {name: add(amount, before.get(name, "0"), -1) for name, amount in storage_usage(claim).items()}
    growth = Cost(tuple((name, amount) for name, amount in grown.items() if name.endswith(REQUESTS_STORAGE)))
    return find_exceeded(matching_quotas(quotas, growth), growth, CLAIMS, claim.metadata.name)


def count_fitting(quotas: Iterable[ResourceQuota], each: Cost, most: int) -> int:
    """Return how many such objects fit, at most `most`."""
    for quota in quotas:
        for name, amount in _limited_usage(each.at(None), quota.status.hard).items():
            left = parse(quota.status.hard[name]) - parse(quota.status.used.get(name, 0))
            most = min(most, max(left // parse(amount), 0))
    return most


def add_usage(quotas: Iterable[ResourceQuota], each: Cost, times: int = 1) -> list[tuple[ResourceQuota, ResourceQuota]]:
    """The quotas to charge, each without and with so many such objects."""
    pairs = []
    for quota in quotas:
        wanted = _limited_usage(each.at(None), quota.status.hard)
        if wanted and times:
            before = quota.status.used
            used = {**before, **{key: add(before.get(key, 0), amount, times) for key, amount in wanted.items()}}
            pairs.append((quota, replace(quota, status=replace(quota.status, used=used))))
    return pairs


def _limited_usage(usage: Amounts, hard: Amounts) -> dict[str, Quantity]:
    return {name: amount for name, amount in usage.items() if name in hard and compare(amount, 0) > 0}


def _format_amounts(amounts: Amounts, names: Iterable[str]) -> str:
    return ",".join(f"{name}={amounts.get(name, '0')}" for name in sorted(names))


def may_admit_more(before: Object | None, now: Object | None) -> bool:
    """Return whether refused objects may fit after this change of a rule. Not if a quota is only used more than before."""
    if not isinstance(before, ResourceQuota) or not isinstance(now, ResourceQuota):
        return not isinstance(now, ResourceQuota)
    if before.status.hard != now.status.hard or before.spec != now.spec:
        return True
    old, new = before.status.used, now.status.used
    return any(name not in old or compare(amount, old[name]) < 0 for name, amount in new.items())


# --- recount


def recount(
    quota: ResourceQuota,
    pods: Mapping[Cost, int],
    counts: Mapping[str, int],
    now: datetime,
    measured: Iterable[Object] = (),
) -> ResourceQuota:
    """The quota with `spec.hard` and the actual use in its status; the same object if nothing differs.

    `pods` is the number of pods in its namespace by cost, `counts` that of other objects by resource, `measured` all
    objects that it takes more than counting for.
    """
    hard = quota.spec.hard
    used: dict[str, Quantity] = {name: quota.status.used[name] for name in hard if name in quota.status.used}
    used |= dict.fromkeys(filter(is_known, hard), "0")
    for each, number in pods.items():
        if covers(quota, each):
            for name, amount in _limited_usage(each.at(now), hard).items():
                used[name] = add(used[name], amount, number)
    if not any(True for _ in _scope_requirements(quota)):
        for resource, number in counts.items():
            used |= {name: str(number) for name in count_names(resource) if name in hard}
        for obj in measured:
            for name, amount in _limited_usage(measured_usage(obj), hard).items():
                used[name] = add(used[name], amount)
    before = quota.status
    if _same(before.hard, hard) and _same(before.used, used):
        return quota
    return replace(quota, status=replace(before, hard=hard, used=used))


def _same(one: Amounts, other: Amounts) -> bool:
    return one.keys() == other.keys() and all(compare(one[name], other[name]) == 0 for name in one)


def counted_resources(quota: ResourceQuota) -> set[str]:
    """The resources, other than pods, whose number the quota limits."""
    names = {name.removeprefix(COUNT) for name in quota.spec.hard if name.startswith(COUNT) or name in _ALIASES}
    return names - {"pods"} - UNCOUNTED


def next_expiry(pods: Iterable[Cost], now: datetime) -> datetime | None:
    """Return when the next deleted pod stops counting."""
    return min((each.until for each in pods if each.until is not None and each.until >= now), default=None)

"""EndpointSlices of a Service: one endpoint for each pod that its selector finds. Pure; called by the EndpointSlice controller.

As Kubernetes' endpointslice reconciler: at most 100 endpoints in a slice, and an endpoint stays in the slice that it is in, so
that a change of one pod rewrites one slice.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from app.kinds.core.endpointslice import Endpoint, EndpointPort, EndpointSlice
from app.kinds.core.endpointslice_schema import EndpointConditions
from app.kinds.core.service import Service, ServicePort
from app.kinds.core.service_validation import is_headless
from app.kinds.pod.container import ContainerPort
from app.kinds.pod.pod import Pod, is_ready, is_terminal
from app.machinery.base import ObjectMeta
from app.machinery.meta.meta_schema import ObjectReference, OwnerReference
from app.plans.plan import Action, Create, Delete, Names, Plan, Update

SERVICE_NAME = "kubernetes.io/service-name"
HEADLESS = "service.kubernetes.io/headless"
MANAGED_BY = "endpointslice.kubernetes.io/managed-by"
CONTROLLER = "endpointslice-controller.k8s.io"
MOST = 100  # endpoints in a slice

_Group = tuple[str, tuple[EndpointPort, ...]]  # address type and ports, which all endpoints of a slice share


def plan(service: Service, pods: Iterable[Pod], slices: Sequence[EndpointSlice], names: Names) -> Plan:
    """`pods` are all that the selector finds; `slices` those that the controller has made for the Service."""
    wanted: defaultdict[_Group, dict[str, Endpoint]] = defaultdict(dict)
    for pod in pods:
        for address_type, endpoint in endpoints(service, pod):
            wanted[address_type, ports(service, pod)][pod.metadata.uid] = endpoint
    if not wanted:
        first = (service.spec.ip_families or ("IPv4",))[0]
        wanted[first, ()] = {}  # as Kubernetes: a Service without pods has a slice, too
    actions: list[Action] = []
    for group, ours in wanted.items():
        there = [each for each in slices if (each.address_type, each.ports) == group]
        actions += _reconcile(service, group, ours, there, names)
    actions += (Delete(each) for each in slices if (each.address_type, each.ports) not in wanted)
    return Plan(tuple(actions))


def endpoints(service: Service, pod: Pod) -> Iterator[tuple[str, Endpoint]]:
    """Yield the endpoint of a pod for each IP family of the Service, with the type of its address; none if it has ended."""
    if is_terminal(pod) or not pod.status.pod_ip:
        return
    ips = {("IPv6" if ":" in each.ip else "IPv4"): each.ip for each in reversed(pod.status.pod_ips)}
    ips.setdefault("IPv6" if ":" in pod.status.pod_ip else "IPv4", pod.status.pod_ip)
    serving, terminating = is_ready(pod), pod.metadata.deletion_timestamp is not None
    conditions = EndpointConditions(
        ready=service.spec.publish_not_ready_addresses or (serving and not terminating),
        serving=serving,
        terminating=terminating,
    )
    meta, spec = pod.metadata, pod.spec
    named = bool(spec.hostname) and spec.subdomain == service.metadata.name
    for family in service.spec.ip_families or ("IPv4",):
        if family in ips:
            yield (
                family,
                Endpoint(
                    addresses=(ips[family],),
                    conditions=conditions,
                    hostname=spec.hostname if named else None,
                    node_name=spec.node_name or None,
                    target_ref=ObjectReference(kind="Pod", namespace=meta.namespace, name=meta.name, uid=meta.uid),
                ),
            )


def ports(service: Service, pod: Pod) -> tuple[EndpointPort, ...]:
    """Return the ports of the Service at this pod. One whose name no container has is left out."""
    return tuple(
        EndpointPort(name=port.name, protocol=port.protocol, port=number, app_protocol=port.app_protocol)
        for port in service.spec.ports
        if (number := _target(port, pod)) is not None
    )


def _target(port: ServicePort, pod: Pod) -> int | None:
    wanted = port.target_port
    if isinstance(wanted, int):
        return wanted
    if wanted is None:
        return port.port
    named = (each for each in _ports_of(pod) if (each.name, each.protocol) == (wanted, port.protocol))
    return next((each.container_port for each in named), None)


def _ports_of(pod: Pod) -> Iterator[ContainerPort]:
    sidecars = (each for each in pod.spec.init_containers if each.restart_policy == "Always")
    for container in (*pod.spec.containers, *sidecars):
        yield from container.ports


def _reconcile(
    service: Service, group: _Group, wanted: Mapping[str, Endpoint], there: Sequence[EndpointSlice], names: Names
) -> Iterator[Action]:
    """Yield what brings the slices of one group to the endpoints that are wanted."""
    left = dict(wanted)
    kept: list[tuple[EndpointSlice, list[Endpoint]]] = []
    for old in sorted(there, key=lambda each: each.metadata.name):
        mine = [left.pop(uid) for each in old.endpoints if (uid := _uid(each)) in left]
        kept.append((old, mine[:MOST]))
    rest = list(left.values())
    for _, mine in kept:
        taken = max(0, MOST - len(mine))
        mine.extend(rest[:taken])
        del rest[:taken]
    nothing = not rest and not any(mine for _, mine in kept)
    for position, (old, mine) in enumerate(kept):
        if mine or (nothing and position == 0):
            yield from _write(service, group, old, tuple(mine), names)
        else:
            yield Delete(old)
    for start in range(0, len(rest), MOST):
        yield from _write(service, group, None, tuple(rest[start : start + MOST]), names)
    if nothing and not kept:
        yield from _write(service, group, None, (), names)


def _write(
    service: Service, group: _Group, old: EndpointSlice | None, found: tuple[Endpoint, ...], names: Names
) -> Iterator[Action]:
    labels = slice_labels(service)
    if old is None:
        made = _new(service, group, names)
        yield Create(replace(made, endpoints=found))
    elif (old.endpoints, old.metadata.labels) != (found, labels):
        meta = replace(old.metadata, labels=labels, generation=old.metadata.generation + 1)
        yield Update(replace(old, endpoints=found, metadata=meta), old)


def slice_labels(service: Service) -> dict[str, str]:
    """Return the labels of a Service's slices: its own, and those by which the slices are found."""
    headless = {HEADLESS: ""} if is_headless(service) else {}
    own = {key: value for key, value in service.metadata.labels.items() if key != HEADLESS}
    return {**own, SERVICE_NAME: service.metadata.name, MANAGED_BY: CONTROLLER, **headless}


def is_ours(piece: EndpointSlice) -> bool:
    """Return whether the controller made it; others may bring slices of their own."""
    return piece.metadata.labels.get(MANAGED_BY) == CONTROLLER


def _new(service: Service, group: _Group, names: Names) -> EndpointSlice:
    meta = service.metadata
    owner = OwnerReference(
        api_version="v1", kind="Service", name=meta.name, uid=meta.uid, controller=True, block_owner_deletion=True
    )
    return EndpointSlice(
        metadata=ObjectMeta(
            name=names(f"{meta.name}-"),
            generate_name=f"{meta.name}-",
            namespace=meta.namespace,
            labels=slice_labels(service),
            owner_references=(owner,),
        ),
        address_type=group[0],
        ports=group[1],
    )


def _uid(endpoint: Endpoint) -> str:
    return endpoint.target_ref.uid if endpoint.target_ref else ""

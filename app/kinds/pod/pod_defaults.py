"""Defaults of pods and of pod templates, as Kubernetes fills them in.

`default_pod_spec` is for templates, as Jobs hold them; `default_pod` is for pods, and adds what only a pod gets. Both
are idempotent, and return the very object that they were given if nothing is missing: thousands of pods a second are
made from templates that were defaulted already. Quantities come out in canonical form; what is invalid is left for
validation.
"""

from collections.abc import Callable
from operator import is_
from typing import Any, TypeVar

from msgspec.structs import replace

from app.kinds.core.node import NOT_READY, UNREACHABLE
from app.kinds.pod.affinity import Toleration
from app.kinds.pod.container import Container, ContainerPort, EnvVar, EphemeralContainer, ResourceRequirements
from app.kinds.pod.pod_schema import Pod, PodSpec, PodStatus
from app.kinds.pod.probe import HTTPGetAction, Lifecycle, LifecycleHandler, Probe
from app.kinds.pod.security import PodSecurityContext
from app.kinds.pod.volume import (
    ConfigMapVolumeSource,
    DownwardAPIVolumeFile,
    DownwardAPIVolumeSource,
    EmptyDirVolumeSource,
    ObjectFieldSelector,
    ProjectedVolumeSource,
    SecretVolumeSource,
    Volume,
    VolumeProjection,
)
from app.machinery.base import Quantity, Struct
from app.machinery.quantity import canonical

S = TypeVar("S", bound=Struct)
C = TypeVar("C", Container, EphemeralContainer)
M = TypeVar("M", SecretVolumeSource, ConfigMapVolumeSource, DownwardAPIVolumeSource, ProjectedVolumeSource)

GRACE_SECONDS = 30
EVICTION_SECONDS = 300
FILE_MODE = 0o644
MOST_CONTAINERS = 512  # of one sort; a pod with more is left as it is, and validation refuses it
PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}

_TAINTS = {
    key: Toleration(key=key, operator="Exists", effect="NoExecute", toleration_seconds=EVICTION_SECONDS)
    for key in (NOT_READY, UNREACHABLE)
}


def default_pod_spec(spec: PodSpec) -> PodSpec:
    account = spec.service_account_name or spec.service_account
    return _replace_if_different(
        spec,
        restart_policy=spec.restart_policy or "Always",
        dns_policy=spec.dns_policy or "ClusterFirst",
        scheduler_name=spec.scheduler_name or "default-scheduler",
        termination_grace_period_seconds=_or_default(spec.termination_grace_period_seconds, GRACE_SECONDS),
        security_context=spec.security_context or PodSecurityContext(),
        service_account_name=account,
        service_account=account,
        containers=_containers(_container, spec.containers),
        init_containers=_containers(_container, spec.init_containers),
        ephemeral_containers=_containers(_container, spec.ephemeral_containers),
        volumes=_each(_volume, spec.volumes),
        overhead=_quantities(spec.overhead),
        resources=spec.resources and _resources(spec.resources),
    )


def default_pod(pod: Pod) -> Pod:
    spec = _as_pod(default_pod_spec(pod.spec))
    status = pod.status
    if not status.phase:
        status = replace(status, phase="Pending")
    return _replace_if_different(pod, spec=spec, status=_without_generations(status))


def _without_generations(status: PodStatus) -> PodStatus:
    """Not kept while PodObservedGenerationTracking is off, as it is in this version of Kubernetes."""
    if not status.observed_generation and not any(each.observed_generation for each in status.conditions):
        return status
    conditions = tuple(replace(each, observed_generation=0) for each in status.conditions)
    return replace(status, observed_generation=None, conditions=conditions)


def _as_pod(spec: PodSpec) -> PodSpec:
    """Return what admission adds to a pod, and never to a template."""
    account = spec.service_account_name or "default"
    containers = _containers(_default_requests, spec.containers)
    return _replace_if_different(
        spec,
        containers=_each(_on_host, containers) if spec.host_network else containers,
        init_containers=_containers(_default_requests, spec.init_containers),
        enable_service_links=_or_default(spec.enable_service_links, True),
        priority=_or_default(spec.priority, PRIORITIES.get(spec.priority_class_name, 0)),
        preemption_policy=spec.preemption_policy or "PreemptLowerPriority",
        service_account_name=account,
        service_account=account,
        tolerations=_tolerations(spec.tolerations),
    )


def as_sent(pod: Pod, sent: Pod) -> Pod:
    """A pod with defaults, but for what admission adds: that far its client is on record for it."""
    names = {"priority", "preemption_policy", "tolerations"}
    if not (sent.spec.service_account_name or sent.spec.service_account):
        names |= {"service_account_name", "service_account"}
    return replace(pod, spec=replace(pod.spec, **{name: getattr(sent.spec, name) for name in names}))


def _replace_if_different(struct: S, **wanted: Any) -> S:
    changes = {name: value for name, value in wanted.items() if getattr(struct, name) is not value}
    return replace(struct, **changes) if changes else struct


def _each(default: Callable[[S], S], items: tuple[S, ...]) -> tuple[S, ...]:
    if not items:
        return items
    done = tuple(map(default, items))
    return items if all(map(is_, done, items)) else done


def _containers(default: Callable[[S], S], containers: tuple[S, ...]) -> tuple[S, ...]:
    return _each(default, containers) if len(containers) <= MOST_CONTAINERS else containers


def _or_default(value: Any, default: Any) -> Any:
    return default if value is None else value


def _quantities(quantities: dict[str, Quantity]) -> dict[str, Quantity]:
    done = {name: _quantity(quantity) for name, quantity in quantities.items()}
    return quantities if all(map(is_, done.values(), quantities.values())) else done


def _quantity(quantity: Quantity) -> Quantity:
    try:
        text = canonical(quantity)
    except ValueError:
        return quantity
    return quantity if text == quantity else text


def _resources(resources: ResourceRequirements) -> ResourceRequirements:
    return _replace_if_different(
        resources, limits=_quantities(resources.limits), requests=_quantities(resources.requests)
    )


def _container(container: C) -> C:
    return _replace_if_different(
        container,
        image_pull_policy=container.image_pull_policy or _pull_policy(container.image),
        termination_message_path=container.termination_message_path or "/dev/termination-log",
        termination_message_policy=container.termination_message_policy or "File",
        resources=_resources(container.resources) if container.resources else ResourceRequirements(),
        ports=_each(_port, container.ports),
        env=_each(_variable, container.env),
        liveness_probe=container.liveness_probe and _probe(container.liveness_probe),
        readiness_probe=container.readiness_probe and _probe(container.readiness_probe),
        startup_probe=container.startup_probe and _probe(container.startup_probe),
        lifecycle=container.lifecycle and _lifecycle(container.lifecycle),
    )


def _pull_policy(image: str) -> str:
    """Always for what can change under the same name: the tag latest, or none."""
    if "@" in image:
        return "IfNotPresent"
    tag = image.rpartition("/")[2].partition(":")[2]
    return "Always" if tag in ("", "latest") else "IfNotPresent"


def _port(port: ContainerPort) -> ContainerPort:
    return port if port.protocol else replace(port, protocol="TCP")


def _on_host(container: Container) -> Container:
    return _replace_if_different(container, ports=_each(_host_port, container.ports))


def _host_port(port: ContainerPort) -> ContainerPort:
    return port if port.host_port else _replace_if_different(port, host_port=port.container_port)


def _variable(variable: EnvVar) -> EnvVar:
    source = variable.value_from
    if source is None or source.field_ref is None or source.field_ref.api_version:
        return variable
    return replace(variable, value_from=replace(source, field_ref=_field(source.field_ref)))


def _field(selector: ObjectFieldSelector) -> ObjectFieldSelector:
    return selector if selector.api_version else replace(selector, api_version="v1")


def _probe(probe: Probe) -> Probe:
    return _replace_if_different(
        probe,
        http_get=probe.http_get and _http(probe.http_get),
        timeout_seconds=probe.timeout_seconds or 1,
        period_seconds=probe.period_seconds or 10,
        success_threshold=probe.success_threshold or 1,
        failure_threshold=probe.failure_threshold or 3,
    )


def _http(action: HTTPGetAction) -> HTTPGetAction:
    return _replace_if_different(action, path=action.path or "/", scheme=action.scheme or "HTTP")


def _lifecycle(lifecycle: Lifecycle) -> Lifecycle:
    return _replace_if_different(
        lifecycle,
        post_start=lifecycle.post_start and _hook(lifecycle.post_start),
        pre_stop=lifecycle.pre_stop and _hook(lifecycle.pre_stop),
    )


def _hook(hook: LifecycleHandler) -> LifecycleHandler:
    return _replace_if_different(hook, http_get=hook.http_get and _http(hook.http_get))


def _volume(volume: Volume) -> Volume:
    if volume.empty_dir:
        return _replace_if_different(volume, empty_dir=_empty_dir(volume.empty_dir))
    if volume == Volume(name=volume.name):
        return replace(volume, empty_dir=EmptyDirVolumeSource())
    return _replace_if_different(
        volume,
        secret=volume.secret and _default_mode(volume.secret),
        config_map=volume.config_map and _default_mode(volume.config_map),
        downward_api=volume.downward_api
        and _replace_if_different(_default_mode(volume.downward_api), items=_each(_file, volume.downward_api.items)),
        projected=volume.projected and _default_projected(volume.projected),
    )


def _empty_dir(source: EmptyDirVolumeSource) -> EmptyDirVolumeSource:
    return (
        source if source.size_limit is None else _replace_if_different(source, size_limit=_quantity(source.size_limit))
    )


def _default_mode(source: M) -> M:
    return _replace_if_different(source, default_mode=_or_default(source.default_mode, FILE_MODE))


def _file(file: DownwardAPIVolumeFile) -> DownwardAPIVolumeFile:
    return _replace_if_different(file, field_ref=file.field_ref and _field(file.field_ref))


def _default_projected(source: ProjectedVolumeSource) -> ProjectedVolumeSource:
    return _replace_if_different(_default_mode(source), sources=_each(_projection, source.sources))


def _projection(part: VolumeProjection) -> VolumeProjection:
    token, facts = part.service_account_token, part.downward_api
    return _replace_if_different(
        part,
        service_account_token=token
        and _replace_if_different(token, expiration_seconds=_or_default(token.expiration_seconds, 3600)),
        downward_api=facts and _replace_if_different(facts, items=_each(_file, facts.items)),
    )


def _default_requests(container: Container) -> Container:
    """Requests are the limits where they are not given."""
    resources = container.resources
    if not resources or resources.requests.keys() >= resources.limits.keys():
        return container
    return replace(container, resources=replace(resources, requests={**resources.limits, **resources.requests}))


def _tolerations(tolerations: tuple[Toleration, ...]) -> tuple[Toleration, ...]:
    """Pods bear a lost node for five minutes, unless they say for how long."""
    missing = [default for key, default in _TAINTS.items() if not any(_covers(each, key) for each in tolerations)]
    return (*tolerations, *missing) if missing else tolerations


def _covers(toleration: Toleration, key: str) -> bool:
    return toleration.key in ("", key) and toleration.effect in ("", "NoExecute")

"""Validation of containers of all three sorts. Part of `app.kinds.pod.pod_validation`."""

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from msgspec.structs import fields

from app.kinds.pod.container import Container, ContainerPort, ContainerRestartRule, EphemeralContainer
from app.kinds.pod.env_validation import validate_env, validate_env_from
from app.kinds.pod.pod_defaults import MOST_CONTAINERS
from app.kinds.pod.pod_schema import PodSpec
from app.kinds.pod.probe_validation import forbid_probes, validate_probes
from app.kinds.pod.resource_validation import validate_resize, validate_resources
from app.kinds.pod.security_validation import validate_security
from app.kinds.pod.volume import Volume
from app.kinds.pod.volume_validation import absent, validate_mounts
from app.machinery import name_validation
from app.machinery.errors import Cause, duplicate, forbidden, invalid, not_supported, one_of, required, too_many

PROTOCOLS = ("SCTP", "TCP", "UDP")
PULL_POLICIES = ("Always", "IfNotPresent", "Never")
MESSAGE_POLICIES = ("File", "FallbackToLogsOnError")
RESTART_POLICIES = ("Always", "Never", "OnFailure")

_EPHEMERAL_TEXT = "cannot be set for an Ephemeral Container"
_NOT_EPHEMERAL = {
    "ports",
    "resources",
    "liveness_probe",
    "readiness_probe",
    "startup_probe",
    "lifecycle",
    "resize_policy",
    "restart_policy",
    "restart_policy_rules",
}
_FORBIDDEN = tuple((each.name, each.encode_name) for each in fields(EphemeralContainer) if each.name in _NOT_EPHEMERAL)


class _Surroundings(NamedTuple):
    """What of the pod matters to its containers."""

    volumes: Mapping[str, Volume]
    claims: Collection[str]
    grace: int
    restart_policy: str
    host_users: bool


def validate_containers(spec: PodSpec, path: str) -> Iterator[Cause]:
    """Every container of a pod or template."""
    around = _Surroundings(
        volumes={volume.name: volume for volume in spec.volumes},
        claims={claim.name for claim in spec.resource_claims},
        grace=spec.termination_grace_period_seconds or 0,
        restart_policy=spec.restart_policy,
        host_users=spec.host_users is not False,
    )
    excess = _too_many(spec, path)
    if excess:
        yield from excess
        return
    if not spec.containers:
        yield required(f"{path}.containers")
    yield from _main(spec.containers, around, f"{path}.containers")
    taken = {container.name for container in spec.containers}
    yield from _init(spec.init_containers, taken, around, f"{path}.initContainers")
    if spec.ephemeral_containers:
        yield from _ephemeral(spec, around, f"{path}.ephemeralContainers")


def _too_many(spec: PodSpec, path: str) -> list[Cause]:
    """Ours, not Kubernetes': a megabyte of empty containers would cost seconds."""
    return [
        too_many(f"{path}.{wire}", len(containers), MOST_CONTAINERS)
        for wire, containers in (
            ("containers", spec.containers),
            ("initContainers", spec.init_containers),
            ("ephemeralContainers", spec.ephemeral_containers),
        )
        if len(containers) > MOST_CONTAINERS
    ]


def _main(containers: tuple[Container, ...], around: _Surroundings, path: str) -> Iterator[Cause]:
    seen: set[str] = set()
    for index, container in enumerate(containers):
        here = f"{path}[{index}]"
        yield from _common(container, around, here)
        if container.name in seen:
            yield duplicate(f"{here}.name", container.name)
        seen.add(container.name)
        yield from validate_probes(container, around.grace, here)
        yield from _restart(container, here)
    yield from _host_ports(containers, path)


def _init(containers: tuple[Container, ...], taken: set[str], around: _Surroundings, path: str) -> Iterator[Cause]:
    seen = set(taken)
    for index, container in enumerate(containers):
        here = f"{path}[{index}]"
        yield from _common(container, around, here)
        yield from _restart(container, here)
        if container.name in seen:
            yield duplicate(f"{here}.name", container.name)
        elif container.name:
            seen.add(container.name)
        yield from _host_ports((container,), path)
        if container.restart_policy == "Always":
            yield from validate_probes(container, around.grace, here)
        else:
            yield from forbid_probes(container, here)
        if container.resize_policy:
            yield invalid(f"{here}.resizePolicy", container.resize_policy, "must not be set for init containers")


def _ephemeral(spec: PodSpec, around: _Surroundings, path: str) -> Iterator[Cause]:
    others = {container.name for container in (*spec.containers, *spec.init_containers)}
    seen = set(others)
    for index, container in enumerate(spec.ephemeral_containers):
        here = f"{path}[{index}]"
        yield from _common(container, around, here)
        yield from _image_spaces(container, here)
        if container.name in seen:
            yield duplicate(f"{here}.name", container.name)
        seen.add(container.name)
        if container.target_container_name and container.target_container_name not in others:
            yield absent(f"{here}.targetContainerName", container.target_container_name)
        for name, wire in _FORBIDDEN:
            if _is_set(getattr(container, name)):
                yield forbidden(f"{here}.{wire}", _EPHEMERAL_TEXT)
        for position, mount in enumerate(container.volume_mounts):
            for wire, value in (("subPath", mount.sub_path), ("subPathExpr", mount.sub_path_expr)):
                if value:
                    yield forbidden(f"{here}.volumeMounts[{position}].{wire}", _EPHEMERAL_TEXT)


def _is_set(value: object) -> bool:
    """Defaulting gives every container an empty `resources`: that counts as unset."""
    return bool(value) and value != type(value)()


def _common(container: Container | EphemeralContainer, around: _Surroundings, path: str) -> Iterator[Cause]:
    if not container.name:
        yield required(f"{path}.name")
    for text in name_validation.dns_label(container.name) if container.name else ():
        yield invalid(f"{path}.name", container.name, text)
    if not container.image:
        yield required(f"{path}.image")
    message_policy = container.termination_message_policy
    yield from one_of(f"{path}.terminationMessagePolicy", message_policy, MESSAGE_POLICIES)
    yield from _ports(container.ports, f"{path}.ports")
    yield from validate_env(container.env, f"{path}.env")
    yield from validate_env_from(container.env_from, f"{path}.envFrom")
    yield from validate_mounts(container, around.volumes, path)
    yield from one_of(f"{path}.imagePullPolicy", container.image_pull_policy, PULL_POLICIES)
    if container.resources:
        yield from validate_resources(container.resources, around.claims, f"{path}.resources")
    yield from validate_resize(container.resize_policy, around.restart_policy, f"{path}.resizePolicy")
    yield from validate_security(container.security_context, around.host_users, f"{path}.securityContext")


def validate_images(spec: PodSpec, path: str) -> Iterator[Cause]:
    """A pod's rule; templates are let off for the sake of old manifests."""
    for wire, containers in (("containers", spec.containers), ("initContainers", spec.init_containers)):
        for index, container in enumerate(containers):
            yield from _image_spaces(container, f"{path}.{wire}[{index}]")


def _image_spaces(container: Container | EphemeralContainer, path: str) -> Iterator[Cause]:
    if container.image != container.image.strip():
        yield invalid(f"{path}.image", container.image, "must not have leading or trailing whitespace")


def _ports(ports: tuple[ContainerPort, ...], path: str) -> Iterator[Cause]:
    seen: set[str] = set()
    for index, port in enumerate(ports):
        here = f"{path}[{index}]"
        faults = name_validation.port_name(port.name) if port.name else []
        for text in faults:
            yield invalid(f"{here}.name", port.name, text)
        if port.name and not faults:
            if port.name in seen:
                yield duplicate(f"{here}.name", port.name)
            seen.add(port.name)
        if not port.container_port:
            yield required(f"{here}.containerPort")
        for wire, number in (("containerPort", port.container_port), ("hostPort", port.host_port)):
            for text in name_validation.port_number(number) if number else ():
                yield invalid(f"{here}.{wire}", number, text)
        yield from one_of(f"{here}.protocol", port.protocol, PROTOCOLS)


def _host_ports(containers: tuple[Container, ...], path: str) -> Iterator[Cause]:
    """Two containers of a pod cannot have the same port of the node."""
    seen: set[str] = set()
    for index, container in enumerate(containers):
        for position, port in enumerate(container.ports):
            if not port.host_port:
                continue
            key = f"{port.protocol}/{port.host_ip}/{port.host_port}"
            if key in seen:
                yield duplicate(f"{path}[{index}].ports[{position}].hostPort", key)
            seen.add(key)


def _restart(container: Container, path: str) -> Iterator[Cause]:
    if container.restart_policy and container.restart_policy not in RESTART_POLICIES:
        yield not_supported(f"{path}.restartPolicy", container.restart_policy, RESTART_POLICIES)
    if container.restart_policy_rules and not container.restart_policy:
        yield required(f"{path}.restartPolicy", "must specify restartPolicy when restart rules are used")
    if len(container.restart_policy_rules) > 20:
        yield too_many(f"{path}.restartPolicyRules", len(container.restart_policy_rules), 20)
    for index, rule in enumerate(container.restart_policy_rules):
        yield from _restart_rule(rule, f"{path}.restartPolicyRules[{index}]")


def _restart_rule(rule: ContainerRestartRule, path: str) -> Iterator[Cause]:
    yield from one_of(f"{path}.action", rule.action, ("Restart", "RestartAllContainers"))
    if rule.exit_codes is None:
        yield required(f"{path}.exitCodes", "must be specified")
        return
    yield from one_of(f"{path}.exitCodes.operator", rule.exit_codes.operator, ("In", "NotIn"))
    if len(rule.exit_codes.values) > 255:
        yield too_many(f"{path}.exitCodes.values", len(rule.exit_codes.values), 255)

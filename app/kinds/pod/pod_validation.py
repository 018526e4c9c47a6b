"""Validation of pods and of templates of pods, in Kubernetes' words.

Jobs call `validate_template`, the Pod kind the other two. All expect defaulted input, never raise on
anything that decodes, and leave metadata to `app.machinery.meta.metadata_validation`. Parts live in the other `*_validation`
modules.
"""

from collections.abc import Iterator
from itertools import islice

from msgspec.structs import replace

from app.kinds.pod.affinity import Toleration
from app.kinds.pod.container import Container
from app.kinds.pod.container_validation import validate_containers, validate_images
from app.kinds.pod.placement_validation import validate_affinity, validate_spread, validate_tolerations
from app.kinds.pod.pod_resources import qos_class
from app.kinds.pod.pod_schema import (
    HostAlias,
    Pod,
    PodDNSConfig,
    PodResourceClaim,
    PodSchedulingGate,
    PodSchedulingGroup,
    PodSpec,
    PodTemplateSpec,
)
from app.kinds.pod.resource_validation import quantities, validate_resources
from app.kinds.pod.security_validation import validate_pod_security
from app.kinds.pod.shared_specs import TEMPLATE_SPECS, SharedSpecs
from app.kinds.pod.volume_validation import validate_volumes
from app.machinery import name_validation
from app.machinery.errors import Cause, duplicate, forbidden, invalid, not_supported, one_of, required
from app.machinery.meta.metadata_validation import IMMUTABLE, MOST_CAUSES, validate_annotations, validate_labels

RESTART_POLICIES = ("Always", "OnFailure", "Never")
DNS_POLICIES = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
PREEMPTION_POLICIES = ("PreemptLowerPriority", "Never")
SYSTEMS = ("linux", "windows")
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
MOST = 2**31 - 1

CHANGEABLE = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def validate_template(template: PodTemplateSpec, path: str = "spec.template") -> list[Cause]:
    return list(islice(_template(template, path), MOST_CAUSES))


def validate_pod(pod: Pod) -> list[Cause]:
    return list(islice(_pod(pod), MOST_CAUSES))


def _template(template: PodTemplateSpec, path: str) -> Iterator[Cause]:
    yield from validate_labels(template.metadata.labels, f"{path}.labels")
    yield from validate_annotations(template.metadata.annotations, f"{path}.annotations")
    yield from _deletion_cost(template.metadata.annotations, f"{path}.annotations")
    if not TEMPLATE_SPECS.ask(_is_sound, template.spec):
        yield from _spec(template.spec, f"{path}.spec")
    yield from _same_host_ports(template.spec, f"{path}.spec", unset_too=False)
    if template.spec.ephemeral_containers:
        yield forbidden(f"{path}.spec.ephemeralContainers", "ephemeral containers not allowed in pod template")


def _pod(pod: Pod) -> Iterator[Cause]:
    yield from _deletion_cost(pod.metadata.annotations, "metadata.annotations")
    if not _POD_SPECS.ask(_is_sound, _POD_SPECS.share(pod.spec)):
        yield from _spec(pod.spec, "spec")
    yield from _same_host_ports(pod.spec, "spec", unset_too=True)
    yield from validate_images(pod.spec, "spec")
    yield from _validate_gated(pod.spec, "spec")


def _is_sound(spec: PodSpec) -> bool:
    return not any(_spec(spec, ""))


# Clients and controllers create thousands of pods that are alike. They are defaulted by now.
_POD_SPECS = SharedSpecs(lambda spec: spec)


def _deletion_cost(annotations: dict[str, str], path: str) -> Iterator[Cause]:
    cost = annotations.get(DELETION_COST)
    if cost is not None and not is_int32(cost):
        yield invalid(f"{path}[{DELETION_COST}]", cost, "must be a 32bit integer")


def is_int32(text: str) -> bool:
    digits = text.removeprefix("-")
    plain = digits.isascii() and digits.isdigit() and len(digits) <= 10 and (digits == "0" or digits[0] != "0")
    return plain and -(2**31) <= int(text) <= MOST


def _validate_gated(spec: PodSpec, path: str) -> Iterator[Cause]:
    if spec.node_name and spec.scheduling_gates:
        yield forbidden(f"{path}.nodeName", "cannot be set until all schedulingGates have been cleared")


def _spec(spec: PodSpec, path: str) -> Iterator[Cause]:
    yield from validate_volumes(spec.volumes, f"{path}.volumes")
    yield from _claims(spec.resource_claims, f"{path}.resourceClaims")
    yield from validate_containers(spec, path)
    yield from one_of(f"{path}.restartPolicy", spec.restart_policy, RESTART_POLICIES)
    yield from one_of(f"{path}.dnsPolicy", spec.dns_policy, DNS_POLICIES)
    yield from validate_labels(spec.node_selector, f"{path}.nodeSelector")
    yield from validate_pod_security(spec, path)
    yield from validate_affinity(spec.affinity, f"{path}.affinity")
    yield from _dns(spec.dns_config, spec.dns_policy, f"{path}.dnsConfig")
    yield from _group(spec.scheduling_group, f"{path}.schedulingGroup")
    yield from _gates(spec, path)
    yield from validate_spread(spec.topology_spread_constraints, f"{path}.topologySpreadConstraints")
    yield from _names(spec, path)
    deadline = spec.active_deadline_seconds
    if deadline is not None and not 1 <= deadline <= MOST:
        yield invalid(f"{path}.activeDeadlineSeconds", deadline, f"must be between 1 and {MOST}, inclusive")
    yield from validate_tolerations(spec.tolerations, f"{path}.tolerations")
    yield from _aliases(spec.host_aliases, f"{path}.hostAliases")
    if spec.preemption_policy not in ("", *PREEMPTION_POLICIES):
        yield not_supported(f"{path}.preemptionPolicy", spec.preemption_policy, PREEMPTION_POLICIES)
    yield from quantities(spec.overhead, f"{path}.overhead.limits")
    if spec.resources:
        yield from validate_resources(spec.resources, (), f"{path}.resources")
    if spec.os:
        yield from one_of(f"{path}.os.name", spec.os.name, SYSTEMS)


def _names(spec: PodSpec, path: str) -> Iterator[Cause]:
    for wire, value, faults in (
        ("serviceAccountName", spec.service_account_name, name_validation.dns_subdomain),
        ("nodeName", spec.node_name, name_validation.dns_subdomain),
        ("hostname", spec.hostname, name_validation.dns_label),
        ("subdomain", spec.subdomain, name_validation.dns_label),
        ("hostnameOverride", spec.hostname_override, name_validation.dns_subdomain),
        ("priorityClassName", spec.priority_class_name, name_validation.dns_subdomain),
        ("runtimeClassName", spec.runtime_class_name, name_validation.dns_subdomain),
    ):
        for text in faults(value) if value else ():
            yield invalid(f"{path}.{wire}", value, text)


def _group(group: PodSchedulingGroup | None, path: str) -> Iterator[Cause]:
    if group is None:
        return
    if not group.pod_group_name:
        yield invalid(path, "", "must specify one of: `podGroupName`")
    for text in name_validation.dns_subdomain(group.pod_group_name) if group.pod_group_name else ():
        yield invalid(f"{path}.podGroupName", group.pod_group_name, text)


def _gates(spec: PodSpec, path: str) -> Iterator[Cause]:
    for index, readiness in enumerate(spec.readiness_gates):
        for text in name_validation.qualified_name(readiness.condition_type):
            yield invalid(f"{path}.readinessGates[{index}].conditionType", readiness.condition_type, text)
    seen: set[str] = set()
    for index, gate in enumerate(spec.scheduling_gates):
        for text in name_validation.qualified_name(gate.name):
            yield invalid(f"{path}.schedulingGates[{index}]", gate.name, text)
        if gate.name in seen:
            yield duplicate(f"{path}.schedulingGates[{index}]", gate.name)
        seen.add(gate.name)


def _claims(claims: tuple[PodResourceClaim, ...], path: str) -> Iterator[Cause]:
    seen: set[str] = set()
    for index, claim in enumerate(claims):
        here = f"{path}[{index}]"
        if not claim.name:
            yield required(f"{here}.name")
        elif claim.name in seen:
            yield duplicate(f"{here}.name", claim.name)
        else:
            for text in name_validation.dns_label(claim.name):
                yield invalid(f"{here}.name", claim.name, text)
        seen.add(claim.name)
        if claim.resource_claim_name and claim.resource_claim_template_name:
            text = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
            yield invalid(here, claim, text)
        elif not claim.resource_claim_name and not claim.resource_claim_template_name:
            yield invalid(here, claim, "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`")


def _dns(config: PodDNSConfig | None, policy: str, path: str) -> Iterator[Cause]:
    if policy == "None" and config is None:
        yield required(path, "must provide `dnsConfig` when `dnsPolicy` is None")
    if config is None:
        return
    if policy == "None" and not config.nameservers:
        text = "must provide at least one DNS nameserver when `dnsPolicy` is None"
        yield required(f"{path}.nameservers", text)
    if len(config.nameservers) > 3:
        yield invalid(f"{path}.nameservers", config.nameservers, "must not have more than 3 nameservers")
    for index, server in enumerate(config.nameservers):
        for text in name_validation.ip_address(server):
            yield invalid(f"{path}.nameservers[{index}]", server, text)
    yield from _searches(config.searches, f"{path}.searches")
    for index, option in enumerate(config.options):
        if not option.name:
            yield required(f"{path}.options[{index}]", "must not be empty")


def _searches(searches: tuple[str, ...], path: str) -> Iterator[Cause]:
    if len(searches) > 32:
        yield invalid(path, searches, "must not have more than 32 search paths")
    if len(" ".join(searches)) > 2048:
        text = "must not have more than 2048 characters (including spaces) in the search list"
        yield invalid(path, searches, text)
    for index, search in enumerate(searches):
        for text in name_validation.dns_subdomain(search.removesuffix(".")):
            yield invalid(f"{path}[{index}]", search.removesuffix("."), text)


def _aliases(aliases: tuple[HostAlias, ...], path: str) -> Iterator[Cause]:
    for index, alias in enumerate(aliases):
        for text in name_validation.ip_address(alias.ip):
            yield invalid(f"{path}[{index}].ip", alias.ip, text)
        for position, hostname in enumerate(alias.hostnames):
            for text in name_validation.dns_subdomain(hostname):
                yield invalid(f"{path}[{index}].hostnames[{position}]", hostname, text)


def _same_host_ports(spec: PodSpec, path: str, *, unset_too: bool) -> Iterator[Cause]:
    """On the node's network a port cannot be another one outside. Templates may still leave it out."""
    for index, container in enumerate(spec.containers if spec.host_network else ()):
        for position, port in enumerate(container.ports):
            if (port.host_port or unset_too) and port.host_port != port.container_port:
                here = f"{path}.containers[{index}].ports[{position}].hostPort"
                yield invalid(here, port.host_port, "must match `containerPort` when `hostNetwork` is true")


def validate_pod_update(new: Pod, old: Pod) -> list[Cause]:
    """Beside `validate_pod` on the new one: little of a pod's spec may change once it exists."""
    if new.spec == old.spec:
        return []
    for wire, after, before in (
        ("containers", new.spec.containers, old.spec.containers),
        ("initContainers", new.spec.init_containers, old.spec.init_containers),
    ):
        if len(after) != len(before):
            return [forbidden(f"spec.{wire}", "pod updates may not add or remove containers")]
    return [
        *_deadline_change(new.spec.active_deadline_seconds, old.spec.active_deadline_seconds),
        *_toleration_change(new.spec.tolerations, old.spec.tolerations),
        *_gate_change(new.spec.scheduling_gates, old.spec.scheduling_gates),
        *_selector_change(new.spec, old.spec),
        *_quality_change(new, old),
        *([] if _undo_allowed_changes(new.spec, old.spec) == old.spec else [forbidden("spec", CHANGEABLE)]),
    ]


def validate_pod_status(new: Pod, old: Pod) -> list[Cause]:
    """Source: ValidatePodStatusUpdate in Kubernetes' validation of core/v1."""
    if new.status.qos_class != old.status.qos_class:
        return [invalid("status.qosClass", new.status.qos_class, IMMUTABLE)]
    return []


def _quality_change(new: Pod, old: Pod) -> Iterator[Cause]:
    if old.status.qos_class and qos_class(new.spec) != old.status.qos_class:
        yield invalid("metadata", qos_class(new.spec), "Pod QoS is immutable")


def _deadline_change(new: int | None, old: int | None) -> Iterator[Cause]:
    path = "spec.activeDeadlineSeconds"
    if new is None:
        if old is not None:
            yield invalid(path, None, "must not update from a positive integer to nil value")
    elif old is not None and new > old:
        yield invalid(path, new, "must be less than or equal to previous value")


def _toleration_change(new: tuple[Toleration, ...], old: tuple[Toleration, ...]) -> Iterator[Cause]:
    if not _without_seconds(new) >= _without_seconds(old):
        yield forbidden("spec.tolerations", "existing toleration can not be modified except its tolerationSeconds")


def _without_seconds(tolerations: tuple[Toleration, ...]) -> set[Toleration]:
    return {replace(each, toleration_seconds=None) for each in tolerations}


def _gate_change(new: tuple[PodSchedulingGate, ...], old: tuple[PodSchedulingGate, ...]) -> Iterator[Cause]:
    known = set(old)
    for index, gate in enumerate(new):
        if gate not in known:
            text = f"only deletion is allowed, but found new scheduling gate '{gate.name}'"
            yield forbidden(f"spec.schedulingGates[{index}].name", text)


def _selector_change(new: PodSpec, old: PodSpec) -> Iterator[Cause]:
    """A pod that is held back by a gate may be told more narrowly where to run."""
    if old.scheduling_gates:
        for key, value in old.node_selector.items():
            if new.node_selector.get(key) != value:
                yield invalid("spec.nodeSelector", new.node_selector, "only additions are allowed")
                return


def _undo_allowed_changes(new: PodSpec, old: PodSpec) -> PodSpec:
    """The new spec with everything put back that may change, or whose change has a cause of its own."""
    grace = new.termination_grace_period_seconds
    if grace == 1 and (old.termination_grace_period_seconds or 0) < 0:
        grace = old.termination_grace_period_seconds
    return replace(
        new,
        containers=_same_images(new.containers, old.containers),
        init_containers=_same_images(new.init_containers, old.init_containers),
        active_deadline_seconds=old.active_deadline_seconds,
        tolerations=old.tolerations,
        scheduling_gates=old.scheduling_gates,
        node_selector=old.node_selector if old.scheduling_gates else new.node_selector,
        termination_grace_period_seconds=grace,
    )


def _same_images(new: tuple[Container, ...], old: tuple[Container, ...]) -> tuple[Container, ...]:
    return tuple(replace(after, image=before.image) for after, before in zip(new, old, strict=True))

"""Which fields of a pod are kept without effect in this version. Pods and Jobs warn of them when a client sets them."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

from msgspec.structs import fields

from app.kinds.container import Container, ContainerPort, EnvVar, EnvVarSource, ResourceRequirements
from app.kinds.pod_schema import PodOS, PodSpec
from app.kinds.security import PodSecurityContext, SecurityContext
from app.kinds.volume import EmptyDirVolumeSource, Volume, VolumeMount

TEXT = "accepted and kept, but this version of Jobplane does not act on it yet"
MOST_WARNINGS = 50  # they travel in headers
MOST_ITEMS = 100  # of one list that are looked at

_CONTAINER = (
    "ports[].host_port",
    "env[].value_from.file_key_ref",
    "resources.limits",
    "resources.claims",
    "volume_mounts[].mount_propagation",
    "volume_mounts[].sub_path_expr",
    "volume_mounts[].recursive_read_only",
    "volume_mounts[].bind_mount_options",
    "volume_devices",
    "liveness_probe",
    "readiness_probe",
    "startup_probe",
    "lifecycle",
    "security_context",
    "stdin",
    "stdin_once",
    "tty",
    "resize_policy",
    "restart_policy",
    "restart_policy_rules",
)

_VOLUMES = ("name", "empty_dir", "config_map", "secret", "downward_api", "projected")

NOT_ACTED_ON = (
    *(f"volumes[].{each.name}" for each in fields(Volume) if each.name not in _VOLUMES),
    "volumes[].empty_dir.medium",
    "volumes[].empty_dir.size_limit",
    *(f"{containers}[].{part}" for containers in ("init_containers", "containers") for part in _CONTAINER),
    "ephemeral_containers",
    "dns_policy",
    "dns_config",
    "service_account_name",
    "automount_service_account_token",
    "host_network",
    "host_pid",
    "host_ipc",
    "host_users",
    "host_aliases",
    "security_context",
    "image_pull_secrets",
    "subdomain",
    "set_hostname_as_fqdn",
    "hostname_override",
    "affinity.node_affinity.preferred_during_scheduling_ignored_during_execution",
    "affinity.pod_affinity",
    "affinity.pod_anti_affinity",
    "topology_spread_constraints",
    "scheduler_name",
    "scheduling_group",
    "priority_class_name",
    "priority",
    "preemption_policy",
    "share_process_namespace",
    "readiness_gates",
    "runtime_class_name",
    "resource_claims",
    "resources",
    "os",
    "eviction_responders",
)

# Values that ask for nothing but what happens anyway; most are defaults. Where nothing is said, False and 0 are such.
_HARMLESS: dict[str, Any] = {
    "dns_policy": "ClusterFirst",
    "host_users": True,
    "service_account_name": "default",
    "security_context": PodSecurityContext(),
    **{f"{containers}[].security_context": SecurityContext() for containers in ("init_containers", "containers")},
    **{f"{containers}[].resources.limits": {} for containers in ("init_containers", "containers")},
    "scheduler_name": "default-scheduler",
    "preemption_policy": "PreemptLowerPriority",
    "os": PodOS(name="linux"),
}

_WIRE = {
    each.name: each.encode_name
    for struct in (
        PodSpec,
        Container,
        ContainerPort,
        EnvVar,
        EnvVarSource,
        ResourceRequirements,
        Volume,
        VolumeMount,
        EmptyDirVolumeSource,
    )
    for each in fields(struct)
}

_STEPS = tuple((tuple(entry.split(".")), _HARMLESS.get(entry, False)) for entry in NOT_ACTED_ON)


def warnings_of_spec(spec: PodSpec, path: str) -> list[str]:
    """One text for each field set, up to a point; `path` is where the spec stands, such as spec.template.spec."""
    found = (where for steps, harmless in _STEPS for where in _set_at(spec, steps, harmless))
    return [f"{path}.{where}: {TEXT}" for where in islice(found, MOST_WARNINGS)]


def _set_at(part: Any, steps: tuple[str, ...], harmless: Any) -> Iterator[str]:
    """Paths, from `part` on, at which the field that `steps` lead to is set."""
    step, rest = steps[0].removesuffix("[]"), steps[1:]
    value = getattr(part, step)
    if value is None or value in ("", ()) or value == harmless:
        return
    if not rest:
        yield _WIRE[step]
    elif steps[0].endswith("[]"):
        for index, item in enumerate(value[:MOST_ITEMS]):
            for where in _set_at(item, rest, harmless):
                yield f"{_WIRE[step]}[{index}].{where}"
    else:
        for where in _set_at(value, rest, harmless):
            yield f"{_WIRE[step]}.{where}"

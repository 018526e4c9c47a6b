"""Containers: what they run, with what environment and resources, and how they fared."""

from typing import Annotated

import msgspec

from app.kinds.base import (
    Int32,
    Opaque,
    Quantity,
    Struct,
    Time,
    at,
)
from app.kinds.probe import Probe, Lifecycle
from app.kinds.security import SecurityContext
from app.kinds.volume import ObjectFieldSelector, ResourceFieldSelector, VolumeMount, VolumeDevice


class ConfigMapKeySelector(Struct):
    """TODO-DOC"""

    name: Annotated[str, at(1, via=(1,))] = ""
    key: Annotated[str, at(2)] = ""
    optional: Annotated[bool | None, at(3)] = None


class SecretKeySelector(Struct):
    """TODO-DOC"""

    name: Annotated[str, at(1, via=(1,))] = ""
    key: Annotated[str, at(2)] = ""
    optional: Annotated[bool | None, at(3)] = None


class EnvVarSource(Struct):
    """TODO-DOC"""

    field_ref: Annotated[ObjectFieldSelector | None, at(1)] = None
    resource_field_ref: Annotated[ResourceFieldSelector | None, at(2)] = None
    config_map_key_ref: Annotated[ConfigMapKeySelector | None, at(3)] = None
    secret_key_ref: Annotated[SecretKeySelector | None, at(4)] = None
    file_key_ref: Annotated[Opaque | None, at(5)] = None


class EnvVar(Struct):
    """TODO-DOC"""

    name: Annotated[str, at(1)] = ""
    value: Annotated[str, at(2)] = ""
    value_from: Annotated[EnvVarSource | None, at(3)] = None


class ConfigMapEnvSource(Struct):
    """TODO-DOC"""

    name: Annotated[str, at(1, via=(1,))] = ""
    optional: Annotated[bool | None, at(2)] = None


class SecretEnvSource(Struct):
    """TODO-DOC"""

    name: Annotated[str, at(1, via=(1,))] = ""
    optional: Annotated[bool | None, at(2)] = None


class EnvFromSource(Struct):
    """TODO-DOC"""

    prefix: Annotated[str, at(1)] = ""
    config_map_ref: Annotated[ConfigMapEnvSource | None, at(2)] = None
    secret_ref: Annotated[SecretEnvSource | None, at(3)] = None


class ContainerPort(Struct):
    """TODO-DOC"""

    name: Annotated[str, at(1)] = ""
    host_port: Annotated[Int32, at(2)] = 0
    container_port: Annotated[Int32, at(3)] = 0
    protocol: Annotated[str, at(4)] = ""
    host_ip: Annotated[str, at(5)] = ""


class ResourceClaim(Struct):
    """TODO-DOC"""

    name: Annotated[str, at(1)] = ""
    request: Annotated[str, at(2)] = ""


class ResourceRequirements(Struct):
    """TODO-DOC"""

    limits: Annotated[dict[str, Quantity], at(1)] = {}
    requests: Annotated[dict[str, Quantity], at(2)] = {}
    claims: Annotated[tuple[ResourceClaim, ...], at(3)] = ()


class ContainerResizePolicy(Struct):
    """TODO-DOC"""

    resource_name: Annotated[str, at(1)] = ""
    restart_policy: Annotated[str, at(2)] = ""


class ContainerRestartRuleOnExitCodes(Struct):
    """TODO-DOC"""

    operator: Annotated[str, at(1)] = ""
    values: Annotated[tuple[Int32, ...], at(2)] = ()


class ContainerRestartRule(Struct):
    """TODO-DOC"""

    action: Annotated[str, at(1)] = ""
    exit_codes: Annotated[ContainerRestartRuleOnExitCodes | None, at(2)] = None


class Container(Struct):
    """TODO-DOC"""

    name: Annotated[str, at(1)] = ""
    image: Annotated[str, at(2)] = ""
    command: Annotated[tuple[str, ...], at(3)] = ()
    args: Annotated[tuple[str, ...], at(4)] = ()
    working_dir: Annotated[str, at(5)] = ""
    ports: Annotated[tuple[ContainerPort, ...], at(6)] = ()
    env: Annotated[tuple[EnvVar, ...], at(7)] = ()
    resources: Annotated[ResourceRequirements | None, at(8)] = None
    volume_mounts: Annotated[tuple[VolumeMount, ...], at(9)] = ()
    liveness_probe: Annotated[Probe | None, at(10)] = None
    readiness_probe: Annotated[Probe | None, at(11)] = None
    lifecycle: Annotated[Lifecycle | None, at(12)] = None
    termination_message_path: Annotated[str, at(13)] = ""
    image_pull_policy: Annotated[str, at(14)] = ""
    security_context: Annotated[SecurityContext | None, at(15)] = None
    stdin: Annotated[bool, at(16)] = False
    stdin_once: Annotated[bool, at(17)] = False
    tty: Annotated[bool, at(18)] = False
    env_from: Annotated[tuple[EnvFromSource, ...], at(19)] = ()
    termination_message_policy: Annotated[str, at(20)] = ""
    volume_devices: Annotated[tuple[VolumeDevice, ...], at(21)] = ()
    startup_probe: Annotated[Probe | None, at(22)] = None
    resize_policy: Annotated[tuple[ContainerResizePolicy, ...], at(23)] = ()
    restart_policy: Annotated[str, at(24)] = ""
    restart_policy_rules: Annotated[tuple[ContainerRestartRule, ...], at(25)] = ()


class EphemeralContainer(Struct):
    """TODO-DOC"""

    name: Annotated[str, at(1, via=(1,))] = ""
    image: Annotated[str, at(2, via=(1,))] = ""
    command: Annotated[tuple[str, ...], at(3, via=(1,))] = ()
    args: Annotated[tuple[str, ...], at(4, via=(1,))] = ()
    working_dir: Annotated[str, at(5, via=(1,))] = ""
    ports: Annotated[tuple[ContainerPort, ...], at(6, via=(1,))] = ()
    env: Annotated[tuple[EnvVar, ...], at(7, via=(1,))] = ()
    resources: Annotated[ResourceRequirements | None, at(8, via=(1,))] = None
    volume_mounts: Annotated[tuple[VolumeMount, ...], at(9, via=(1,))] = ()
    liveness_probe: Annotated[Probe | None, at(10, via=(1,))] = None
    readiness_probe: Annotated[Probe | None, at(11, via=(1,))] = None
    lifecycle: Annotated[Lifecycle | None, at(12, via=(1,))] = None
    termination_message_path: Annotated[str, at(13, via=(1,))] = ""
    image_pull_policy: Annotated[str, at(14, via=(1,))] = ""
    security_context: Annotated[SecurityContext | None, at(15, via=(1,))] = None
    stdin: Annotated[bool, at(16, via=(1,))] = False
    stdin_once: Annotated[bool, at(17, via=(1,))] = False
    tty: Annotated[bool, at(18, via=(1,))] = False
    env_from: Annotated[tuple[EnvFromSource, ...], at(19, via=(1,))] = ()
    termination_message_policy: Annotated[str, at(20, via=(1,))] = ""
    volume_devices: Annotated[tuple[VolumeDevice, ...], at(21, via=(1,))] = ()
    startup_probe: Annotated[Probe | None, at(22, via=(1,))] = None
    resize_policy: Annotated[tuple[ContainerResizePolicy, ...], at(23, via=(1,))] = ()
    restart_policy: Annotated[str, at(24, via=(1,))] = ""
    restart_policy_rules: Annotated[tuple[ContainerRestartRule, ...], at(25, via=(1,))] = ()
    target_container_name: Annotated[str, at(2)] = ""


class ContainerStateWaiting(Struct):
    """TODO-DOC"""

    reason: Annotated[str, at(1)] = ""
    message: Annotated[str, at(2)] = ""


class ContainerStateRunning(Struct):
    """TODO-DOC"""

    started_at: Annotated[Time | None, at(1)] = None


class ContainerStateTerminated(Struct):
    """TODO-DOC"""

    exit_code: Annotated[Int32, at(1)] = msgspec.field(default_factory=lambda: 0)
    signal: Annotated[Int32, at(2)] = 0
    reason: Annotated[str, at(3)] = ""
    message: Annotated[str, at(4)] = ""
    started_at: Annotated[Time | None, at(5)] = None
    finished_at: Annotated[Time | None, at(6)] = None
    container_id: Annotated[str, at(7)] = ""


class ContainerState(Struct):
    """TODO-DOC"""

    waiting: Annotated[ContainerStateWaiting | None, at(1)] = None
    running: Annotated[ContainerStateRunning | None, at(2)] = None
    terminated: Annotated[ContainerStateTerminated | None, at(3)] = None


class ContainerStatus(Struct):
    """TODO-DOC"""

    name: Annotated[str, at(1)] = ""
    state: Annotated[ContainerState | None, at(2)] = None
    last_state: Annotated[ContainerState | None, at(3)] = None
    ready: Annotated[bool, at(4)] = msgspec.field(default_factory=lambda: False)
    restart_count: Annotated[Int32, at(5)] = msgspec.field(default_factory=lambda: 0)
    image: Annotated[str, at(6)] = msgspec.field(default_factory=lambda: "")
    image_id: Annotated[str, at(7)] = msgspec.field(default_factory=lambda: "")
    container_id: Annotated[str, at(8)] = ""
    started: Annotated[bool | None, at(9)] = None
    allocated_resources: Annotated[dict[str, Quantity], at(10)] = {}
    resources: Annotated[ResourceRequirements | None, at(11)] = None
    volume_mounts: Annotated[tuple[Opaque, ...], at(12)] = ()
    user: Annotated[Opaque | None, at(13)] = None
    allocated_resources_status: Annotated[tuple[Opaque, ...], at(14)] = ()
    stop_signal: Annotated[str, at(15)] = ""

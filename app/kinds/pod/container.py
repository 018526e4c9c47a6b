"""Containers: what they run, with what environment and resources, and how they fared."""

from typing import Annotated

import msgspec

from app.kinds.pod.probe import SIGNALS, Lifecycle, Probe
from app.kinds.pod.security import SecurityContext
from app.kinds.pod.volume import ObjectFieldSelector, ResourceFieldSelector, VolumeDevice, VolumeMount
from app.machinery.base import (
    TOLD,
    Int32,
    Int64,
    Opaque,
    Quantity,
    Struct,
    Time,
    at,
)


class ConfigMapKeySelector(Struct):
    """Names one key of a ConfigMap."""

    name: Annotated[str, at(1, "Name of the ConfigMap.", via=(1,), default="")] = ""
    key: Annotated[str, at(2, "The key.", required=True)] = ""
    optional: Annotated[bool | None, at(3, "True: it may be missing.")] = None


class SecretKeySelector(Struct):
    """Names one key of a Secret."""

    name: Annotated[str, at(1, "Name of the Secret.", via=(1,), default="")] = ""
    key: Annotated[str, at(2, "The key.", required=True)] = ""
    optional: Annotated[bool | None, at(3, "True: it may be missing.")] = None


class EnvVarSource(Struct):
    """Where an environment variable's value comes from; exactly one is set."""

    field_ref: Annotated[ObjectFieldSelector | None, at(1, "A field of the pod.")] = None
    resource_field_ref: Annotated[ResourceFieldSelector | None, at(2, "A request or limit of a container.")] = None
    config_map_key_ref: Annotated[ConfigMapKeySelector | None, at(3, "A key of a ConfigMap.")] = None
    secret_key_ref: Annotated[SecretKeySelector | None, at(4, "A key of a Secret.")] = None
    file_key_ref: Annotated[Opaque | None, at(5, "A key of a file that an earlier container wrote.")] = None


class EnvVar(Struct):
    """One environment variable."""

    name: Annotated[str, at(1, "Its name.", required=True)] = ""
    value: Annotated[str, at(2, "Its value; $(NAME) stands for an earlier variable.")] = ""
    value_from: Annotated[EnvVarSource | None, at(3, "Where its value comes from, if not given.")] = None


class ConfigMapEnvSource(Struct):
    """All keys of a ConfigMap as variables."""

    name: Annotated[str, at(1, "Name of the ConfigMap.", via=(1,), default="")] = ""
    optional: Annotated[bool | None, at(2, "True: it may be missing.")] = None


class SecretEnvSource(Struct):
    """All keys of a Secret as variables."""

    name: Annotated[str, at(1, "Name of the Secret.", via=(1,), default="")] = ""
    optional: Annotated[bool | None, at(2, "True: it may be missing.")] = None


class EnvFromSource(Struct):
    """Many environment variables at once; exactly one source is set."""

    prefix: Annotated[str, at(1, "Put before every name.")] = ""
    config_map_ref: Annotated[ConfigMapEnvSource | None, at(2, "A ConfigMap.")] = None
    secret_ref: Annotated[SecretEnvSource | None, at(3, "A Secret.")] = None


class ContainerPort(Struct):
    """A port that the container listens on; for people and for hostPort."""

    name: Annotated[str, at(1, "Name, unique in the pod.")] = ""
    host_port: Annotated[Int32, at(2, "Port of the node that leads here.")] = 0
    container_port: Annotated[Int32, at(3, "The port, 1 to 65535.", required=True)] = 0
    protocol: Annotated[str, at(4, "TCP (the default), UDP or SCTP.", default="TCP", enum=("SCTP", "TCP", "UDP"))] = ""
    host_ip: Annotated[str, at(5, "Address of the node that hostPort binds to.")] = ""


class ResourceClaim(Struct):
    """Names an entry of the pod's resourceClaims."""

    name: Annotated[str, at(1, "Name of the entry.", required=True)] = ""
    request: Annotated[str, at(2, "A single request of the claim; all if empty.")] = ""


class ResourceRequirements(Struct):
    """What a container needs and how much it may take."""

    limits: Annotated[dict[str, Quantity], at(1, "The most it may take, by resource.")] = msgspec.field(
        default_factory=dict
    )
    requests: Annotated[dict[str, Quantity], at(2, "What is set aside for it; its limits if unset.")] = msgspec.field(
        default_factory=dict
    )
    claims: Annotated[
        tuple[ResourceClaim, ...], at(3, "Entries of the pod's resourceClaims that it uses.", list_keys=("name",))
    ] = ()


class ContainerResizePolicy(Struct):
    """What a change of one resource does to the container."""

    resource_name: Annotated[str, at(1, "cpu or memory.", required=True)] = ""
    restart_policy: Annotated[str, at(2, "NotRequired or RestartContainer.", required=True)] = ""


class ContainerRestartRuleOnExitCodes(Struct):
    """Matches exit codes."""

    operator: Annotated[str, at(1, "In or NotIn.", required=True)] = ""
    values: Annotated[tuple[Int32, ...], at(2, "The exit codes.")] = ()


class ContainerRestartRule(Struct):
    """What to do if the container ended in a certain way."""

    action: Annotated[str, at(1, "Restart or RestartAllContainers.", required=True)] = ""
    exit_codes: Annotated[ContainerRestartRuleOnExitCodes | None, at(2, "The exit codes meant.")] = None


class Container(Struct):
    """One program of a pod."""

    name: Annotated[str, at(1, "Name, a DNS label, unique in the pod. Cannot change.", required=True)] = ""
    image: Annotated[str, at(2, "Image to run.")] = ""
    command: Annotated[tuple[str, ...], at(3, "argv in place of the image's entry point; $(NAME) is filled in.")] = ()
    args: Annotated[tuple[str, ...], at(4, "Arguments in place of the image's own; $(NAME) is filled in.")] = ()
    working_dir: Annotated[str, at(5, "Folder it starts in; the image's own if empty.")] = ""
    ports: Annotated[
        tuple[ContainerPort, ...],
        at(
            6,
            "Ports it listens on.",
            patch_key="containerPort",
            patch="merge",
            list_keys=("containerPort", "protocol"),
        ),
    ] = ()
    env: Annotated[tuple[EnvVar, ...], at(7, "Environment variables.", patch_key="name", patch="merge")] = ()
    resources: Annotated[ResourceRequirements | None, at(8, "What it needs and may take.")] = None
    volume_mounts: Annotated[
        tuple[VolumeMount, ...], at(9, "Volumes it sees as folders.", patch_key="mountPath", patch="merge")
    ] = ()
    liveness_probe: Annotated[Probe | None, at(10, "If it fails, the container is restarted.")] = None
    readiness_probe: Annotated[Probe | None, at(11, "Whether the container is ready.")] = None
    lifecycle: Annotated[Lifecycle | None, at(12, "Hooks around its life.")] = None
    termination_message_path: Annotated[str, at(13, "File that it may leave its last words in.")] = ""
    image_pull_policy: Annotated[
        str, at(14, "Always, IfNotPresent or Never.", enum=("Always", "IfNotPresent", "Never"))
    ] = ""
    security_context: Annotated[SecurityContext | None, at(15, "Who it runs as and what it may do.")] = None
    stdin: Annotated[bool, at(16, "True: keep standard input open.")] = False
    stdin_once: Annotated[bool, at(17, "True: close standard input after the first client.")] = False
    tty: Annotated[bool, at(18, "True: give it a terminal; needs stdin.")] = False
    env_from: Annotated[tuple[EnvFromSource, ...], at(19, "Many environment variables at once; env wins.")] = ()
    termination_message_policy: Annotated[
        str, at(20, "File, or FallbackToLogsOnError.", enum=("FallbackToLogsOnError", "File"))
    ] = ""
    volume_devices: Annotated[
        tuple[VolumeDevice, ...], at(21, "Volumes it sees as block devices.", patch_key="devicePath", patch="merge")
    ] = ()
    startup_probe: Annotated[Probe | None, at(22, "Until it succeeds, the other probes wait.")] = None
    resize_policy: Annotated[tuple[ContainerResizePolicy, ...], at(23, "What a change of resources does.")] = ()
    restart_policy: Annotated[str, at(24, "Overrides the pod's; Always makes an init container a sidecar.")] = ""
    restart_policy_rules: Annotated[
        tuple[ContainerRestartRule, ...], at(25, "Checked in order before restartPolicy.")
    ] = ()


class EphemeralContainer(Struct):
    """A container added to a running pod, for debugging."""

    name: Annotated[str, at(1, "Name, a DNS label, unique in the pod. Cannot change.", via=(1,), required=True)] = ""
    image: Annotated[str, at(2, "Image to run.", via=(1,))] = ""
    command: Annotated[tuple[str, ...], at(3, "argv in place of the image's entry point.", via=(1,))] = ()
    args: Annotated[tuple[str, ...], at(4, "Arguments in place of the image's own.", via=(1,))] = ()
    working_dir: Annotated[str, at(5, "Folder it starts in.", via=(1,))] = ""
    ports: Annotated[
        tuple[ContainerPort, ...],
        at(
            6,
            "Not allowed here.",
            via=(1,),
            patch_key="containerPort",
            patch="merge",
            list_keys=("containerPort", "protocol"),
        ),
    ] = ()
    env: Annotated[tuple[EnvVar, ...], at(7, "Environment variables.", via=(1,), patch_key="name", patch="merge")] = ()
    resources: Annotated[ResourceRequirements | None, at(8, "Not allowed here.", via=(1,))] = None
    volume_mounts: Annotated[
        tuple[VolumeMount, ...],
        at(9, "Volumes it sees as folders; no subPath.", via=(1,), patch_key="mountPath", patch="merge"),
    ] = ()
    liveness_probe: Annotated[Probe | None, at(10, "Not allowed here.", via=(1,))] = None
    readiness_probe: Annotated[Probe | None, at(11, "Not allowed here.", via=(1,))] = None
    lifecycle: Annotated[Lifecycle | None, at(12, "Not allowed here.", via=(1,))] = None
    termination_message_path: Annotated[str, at(13, "File for its last words.", via=(1,))] = ""
    image_pull_policy: Annotated[
        str, at(14, "Always, IfNotPresent or Never.", via=(1,), enum=("Always", "IfNotPresent", "Never"))
    ] = ""
    security_context: Annotated[SecurityContext | None, at(15, "Who it runs as and what it may do.", via=(1,))] = None
    stdin: Annotated[bool, at(16, "True: keep standard input open.", via=(1,))] = False
    stdin_once: Annotated[bool, at(17, "True: close it after the first client.", via=(1,))] = False
    tty: Annotated[bool, at(18, "True: give it a terminal.", via=(1,))] = False
    env_from: Annotated[tuple[EnvFromSource, ...], at(19, "Many environment variables at once.", via=(1,))] = ()
    termination_message_policy: Annotated[
        str, at(20, "File, or FallbackToLogsOnError.", via=(1,), enum=("FallbackToLogsOnError", "File"))
    ] = ""
    volume_devices: Annotated[
        tuple[VolumeDevice, ...],
        at(21, "Volumes it sees as block devices.", via=(1,), patch_key="devicePath", patch="merge"),
    ] = ()
    startup_probe: Annotated[Probe | None, at(22, "Not allowed here.", via=(1,))] = None
    resize_policy: Annotated[tuple[ContainerResizePolicy, ...], at(23, "Not allowed here.", via=(1,))] = ()
    restart_policy: Annotated[str, at(24, "Not allowed here.", via=(1,))] = ""
    restart_policy_rules: Annotated[tuple[ContainerRestartRule, ...], at(25, "Not allowed here.", via=(1,))] = ()
    target_container_name: Annotated[str, at(2, "The container whose processes it sees.")] = ""


class ContainerStateWaiting(Struct):
    """Not yet running."""

    reason: Annotated[str, at(1, "One word for why.")] = ""
    message: Annotated[str, at(2, "A sentence for people.")] = ""


class ContainerStateRunning(Struct):
    """Running."""

    started_at: Annotated[Time | None, at(1, "When it was started.")] = None


class ContainerStateTerminated(Struct):
    """Ended."""

    exit_code: Annotated[
        Int32, at(1, "Exit code; 128 and the signal's number if a signal ended it.", required=True)
    ] = msgspec.field(default_factory=lambda: 0)
    signal: Annotated[Int32, at(2, "Number of the signal that ended it, if known.")] = 0
    reason: Annotated[str, at(3, "One word for how it ended, such as Completed, Error or OOMKilled.")] = ""
    message: Annotated[str, at(4, "Its last words, or why it could not be started.")] = ""
    started_at: Annotated[Time | None, at(5, "When it was started.")] = None
    finished_at: Annotated[Time | None, at(6, "When it ended.")] = None
    container_id: Annotated[str, at(7, "ID of this run, as type://id.")] = ""


class ContainerState(Struct):
    """Exactly one of these is set; none means waiting."""

    waiting: Annotated[ContainerStateWaiting | None, at(1, "Not yet running.")] = None
    running: Annotated[ContainerStateRunning | None, at(2, "Running.")] = None
    terminated: Annotated[ContainerStateTerminated | None, at(3, "Ended.")] = None


class VolumeMountStatus(Struct):
    """How a volume was mounted."""

    name: Annotated[str, at(1, "Name of the volume.", required=True)] = TOLD
    mount_path: Annotated[str, at(2, "Where it is mounted.", required=True)] = TOLD
    read_only: Annotated[bool, at(3, "True: it is mounted read-only.")] = False
    recursive_read_only: Annotated[str | None, at(4, "Disabled, IfPossible or Enabled.")] = None


class LinuxContainerUser(Struct):
    """Whom the first process of a container runs as."""

    uid: Annotated[Int64, at(1, "Its UID.", required=True)] = msgspec.field(default_factory=lambda: 0)
    gid: Annotated[Int64, at(2, "First group.", required=True)] = msgspec.field(default_factory=lambda: 0)
    supplemental_groups: Annotated[tuple[Int64, ...], at(3, "Further groups.")] = ()


class ContainerUser(Struct):
    """Whom the first process of a container runs as, by operating system."""

    linux: Annotated[LinuxContainerUser | None, at(1, "On Linux.")] = None


class ResourceHealth(Struct):
    """How a device is."""

    resource_id: Annotated[str, at(1, "ID of the device.", required=True)] = TOLD
    health: Annotated[str, at(2, "Healthy, Unhealthy or Unknown.")] = ""


class ResourceStatus(Struct):
    """How the devices of one resource are."""

    name: Annotated[str, at(1, "Its name.", required=True)] = TOLD
    resources: Annotated[tuple[ResourceHealth, ...], at(2, "Health of each device.", list_keys=("resourceID",))] = ()


class ContainerStatus(Struct):
    """How one container fares."""

    name: Annotated[str, at(1, "Name of the container.", required=True)] = TOLD
    state: Annotated[ContainerState | None, at(2, "How it is now.")] = None
    last_state: Annotated[ContainerState | None, at(3, "How its previous run ended.")] = None
    ready: Annotated[bool, at(4, "Whether it runs and is ready.", required=True)] = msgspec.field(
        default_factory=lambda: False
    )
    restart_count: Annotated[Int32, at(5, "How often it was restarted.", required=True)] = msgspec.field(
        default_factory=lambda: 0
    )
    image: Annotated[str, at(6, "Image that it runs.", required=True)] = TOLD
    image_id: Annotated[str, at(7, "ID of that image.", required=True)] = TOLD
    container_id: Annotated[str, at(8, "ID of the current run, as type://id.")] = ""
    started: Annotated[bool | None, at(9, "Whether it got past its startup probe.")] = None
    allocated_resources: Annotated[dict[str, Quantity], at(10, "Resources that the node has granted.")] = msgspec.field(
        default_factory=dict
    )
    resources: Annotated[ResourceRequirements | None, at(11, "Resources in force.")] = None
    volume_mounts: Annotated[
        tuple[VolumeMountStatus, ...], at(12, "How its volumes were mounted.", patch_key="mountPath", patch="merge")
    ] = ()
    user: Annotated[ContainerUser | None, at(13, "Who its first process runs as.")] = None
    allocated_resources_status: Annotated[
        tuple[ResourceStatus, ...], at(14, "Health of the devices it was given.", patch_key="name", patch="merge")
    ] = ()
    stop_signal: Annotated[str, at(15, "Signal that will stop it.", enum=SIGNALS)] = ""

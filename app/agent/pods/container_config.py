"""Container configuration: from a pod's spec to what a runtime needs, with all values resolved. Called by `starts`."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from app.agent.clock import Clock
from app.agent.network.cluster_dns import ClusterDns
from app.agent.node import rootless
from app.agent.node.devices import DeviceManager
from app.agent.node.pressure import Pressures
from app.agent.pods import security_context
from app.agent.pods.environment import Lookup, expand_all, resolve
from app.agent.pods.hosts_file import HostsFiles
from app.agent.pods.isolation import restrict
from app.agent.pods.namespace_levels import NamespaceLevels
from app.agent.pods.resolv_conf import ResolvConfFiles
from app.agent.pods.sandbox_config import hostname, kernel_hostname
from app.agent.volumes.volumes import Volumes
from app.kinds.pod.container import Container
from app.kinds.pod.pod import Pod
from app.plans.kubelet.container_history import Run
from app.plans.kubelet.sync_pod import Key
from app.runtimes.base import (
    ContainerKey,
    ContainerSpec,
    ContainerStatus,
    CreateError,
    Mount,
    Runtime,
    RuntimeInfo,
    Sandbox,
    StartError,
)

# The first words are Kubernetes', by which this is looked for.
NO_COMMAND = "no command specified: the process runtime pulls no images, so set the container's command"


async def _at_once() -> None:
    return


@dataclass(frozen=True, kw_only=True)
class Host:
    """What the pods of this agent run on. `ip` is the node's; pods share it unless the runtime has a pod network.

    levels: of namespaces, if the runtime isolates pods by them, or gives pods by them what is the node's.
    dns:    the node's DNS responder, where there is one.
    await_network: until the network of pods that have one of their own stands. Raises CreateError.
    """

    runtime: Runtime
    info: RuntimeInfo
    ip: str
    lookup: Lookup
    volumes: Volumes
    hosts: HostsFiles
    resolv_conf: ResolvConfFiles
    clock: Clock
    pressures: Pressures
    state_dir: Path
    devices: DeviceManager = field(default_factory=DeviceManager)
    levels: NamespaceLevels | None = None
    dns: ClusterDns | None = None
    await_network: Callable[[], Awaitable[None]] = _at_once
    profiles: Path = Path("/var/lib/kubelet/seccomp")


async def container(
    pod: Pod, key: Key, host: Host, image_user: str = "", sandbox: Sandbox | None = None
) -> ContainerSpec:
    """Raises ContainerConfigError, VolumeError, CreateError, and what reading a ConfigMap or Secret raises."""
    spec = find_container(pod, key.name)
    given = host.devices.allocation_of(pod.metadata.uid, key.name)
    env = {"HOSTNAME": hostname(pod), **given.env, **await resolve(pod, spec, host.ip, host.lookup)}
    command, args = expand_all(spec.command, env), expand_all(spec.args, env)
    if not (command or args) and host.info.runs_commands and not host.info.images:
        raise CreateError(NO_COMMAND)
    security = security_context.security(pod, spec, host.profiles)
    if sandbox is not None:
        security = restrict(security, sandbox, spec.name)
    security_context.check(pod, spec, security, host.info, image_user)
    limits = security_context.limits(spec)
    rootless.check(spec.name, limits, given.files, privileged=security.privileged, info=host.info)
    return ContainerSpec(
        key=ContainerKey(pod.metadata.uid, *key),
        image=spec.image,
        command=command,
        args=args,
        env=env,
        working_dir=spec.working_dir,
        mounts=await _mounts(pod, spec, env, host),
        termination_message_path=spec.termination_message_path or "/dev/termination-log",
        limits=limits,
        security=security,
        stdin=spec.stdin,
        stdin_once=spec.stdin_once,
        tty=spec.tty,
        devices=given.files,
        hostname="" if pod.spec.host_network else kernel_hostname(pod),
    )


async def _mounts(pod: Pod, spec: Container, env: dict[str, str], host: Host) -> tuple[Mount, ...]:
    return (
        *await host.volumes.mounts(pod, spec, env),
        *host.hosts.mount(pod, spec),
        *host.resolv_conf.mount(pod, spec),
    )


def find_container(pod: Pod, name: str) -> Container:
    return next(each for each in (*pod.spec.containers, *pod.spec.init_containers) if each.name == name)


def run_of(status: ContainerStatus) -> Run:
    """A run as plans know it."""
    return Run(
        status.key.name,
        status.key.attempt,
        status.state,
        status.id,
        status.started_at,
        status.finished_at,
        status.exit_code,
        status.reason,
        status.termination_message or status.message,
    )


def failed_run(key: Key, error: StartError, host: Host) -> Run:
    """A run that never was: it counts as one that ended."""
    now = host.clock.now()
    return Run(key.name, key.attempt, "exited", "", now, now, error.exit_code, "StartError", str(error))

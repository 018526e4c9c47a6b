"""From a pod's spec to what a runtime is told: everything resolved, volumes prepared. Used by `pods` for each start."""

from dataclasses import dataclass

from app.agent.clock import Clock
from app.agent.environment import Lookup, expanded, resolve
from app.agent.volumes import Volumes
from app.kinds.container import Container
from app.kinds.pod import Pod
from app.plans.pod import Key
from app.plans.restarts import Run
from app.runtimes.base import (
    ContainerKey,
    ContainerSpec,
    ContainerStatus,
    Runtime,
    RuntimeInfo,
    SandboxSpec,
    StartError,
)

HOSTNAME_LENGTH = 63


@dataclass(frozen=True, kw_only=True)
class Host:
    """What the pods of this agent run on. `ip` is the node's; pods share it."""

    runtime: Runtime
    info: RuntimeInfo
    ip: str
    lookup: Lookup
    volumes: Volumes
    clock: Clock


def sandbox(pod: Pod) -> SandboxSpec:
    meta = pod.metadata
    return SandboxSpec(
        pod_uid=meta.uid,
        namespace=meta.namespace,
        name=meta.name,
        hostname=hostname(pod),
        annotations=meta.annotations,
    )


def hostname(pod: Pod) -> str:
    return pod.spec.hostname or pod.metadata.name[:HOSTNAME_LENGTH].rstrip("-.")


async def container(pod: Pod, key: Key, host: Host) -> ContainerSpec:
    """Raises ConfigError, StartError, and what reading a ConfigMap or Secret raises."""
    spec = _named(pod, key.name)
    env = {"HOSTNAME": hostname(pod), **await resolve(pod, spec, host.ip, host.lookup)}
    command, args = expanded(spec.command, env), expanded(spec.args, env)
    if not (command or args) and host.info.name == "process":
        raise StartError("no command specified")  # there is no image that would know one
    return ContainerSpec(
        key=ContainerKey(pod.metadata.uid, *key),
        image=spec.image,
        command=command,
        args=args,
        env=env,
        working_dir=spec.working_dir,
        mounts=await host.volumes.mounts(pod, spec, env),
        termination_message_path=spec.termination_message_path or "/dev/termination-log",
    )


def _named(pod: Pod, name: str) -> Container:
    return next(each for each in (*pod.spec.init_containers, *pod.spec.containers) if each.name == name)


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


def unstarted(key: Key, error: StartError, host: Host) -> Run:
    """A run that never was: it counts as one that ended."""
    now = host.clock.now()
    return Run(key.name, key.attempt, "exited", "", now, now, error.exit_code, "StartError", str(error))

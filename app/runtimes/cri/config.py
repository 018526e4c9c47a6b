"""CRI configuration of pods and containers, from what the agent passes to the cri runtime. Pure."""

from pathlib import Path

from app.plans.kubelet import image_pulls
from app.runtimes.base import ContainerKey, ContainerSpec, ResourceLimits, SandboxSpec, Security
from app.runtimes.cri.messages import pb
from app.runtimes.engine.config import (
    CONTAINER,
    ENDS_FIRST,
    MASKED,
    NODE,
    PERIOD,
    POD,
    READ_ONLY,
    STDIN,
    TTY,
    quota,
    shares,
)


def sandbox(spec: SandboxSpec, node: str, attempt: int, logs: Path) -> pb.PodSandboxConfig:
    namespaces = pb.NamespaceOption(
        network=pb.NODE if spec.host_network else pb.POD,
        pid=pb.NODE if spec.host_pid else pb.POD if spec.share_pid else pb.CONTAINER,
        ipc=pb.NODE if spec.host_ipc else pb.POD,
    )
    dns = spec.dns
    return pb.PodSandboxConfig(
        metadata=pb.PodSandboxMetadata(name=spec.name, uid=spec.pod_uid, namespace=spec.namespace, attempt=attempt),
        hostname="" if spec.host_network else spec.hostname,
        log_directory=str(logs),
        dns_config=pb.DNSConfig(servers=dns.servers, searches=dns.searches, options=dns.options) if dns else None,
        labels={NODE: node, POD: spec.pod_uid},
        port_mappings=[
            pb.PortMapping(
                protocol=pb.Protocol.Value(each.protocol),
                container_port=each.number,
                host_port=each.on_node,
                host_ip=each.address,
            )
            for each in spec.ports
        ],
        linux=pb.LinuxPodSandboxConfig(
            security_context=pb.LinuxSandboxSecurityContext(namespace_options=namespaces, privileged=spec.privileged)
        ),
    )


def container(spec: ContainerSpec, pod: pb.PodSandboxConfig, log_path: str, message: Path) -> pb.ContainerConfig:
    """`message` is the host's file for the termination message."""
    rights = security(spec.security)
    rights.namespace_options.CopyFrom(
        pod.linux.security_context.namespace_options
    )  # else it shares its pod's processes
    mounts = [
        pb.Mount(container_path=mount.target, host_path=str(mount.source), readonly=mount.read_only)
        for mount in spec.mounts
    ]
    mounts.append(pb.Mount(container_path=spec.termination_message_path, host_path=str(message)))
    return pb.ContainerConfig(
        metadata=pb.ContainerMetadata(name=spec.key.name, attempt=spec.key.attempt),
        image=image(spec.image),
        command=spec.command,
        args=spec.args,
        working_dir=spec.working_dir,
        envs=[pb.KeyValue(key=name, value=value) for name, value in spec.env.items()],
        mounts=mounts,
        devices=[pb.Device(container_path=path, host_path=path, permissions="rwm") for path in spec.devices],
        labels={NODE: pod.labels[NODE], POD: spec.key.pod_uid, CONTAINER: spec.key.name},
        annotations={TTY: str(spec.tty), STDIN: str(spec.stdin)},
        log_path=log_path,
        stdin=spec.stdin,
        stdin_once=spec.stdin_once,
        tty=spec.tty,
        linux=pb.LinuxContainerConfig(resources=resources(spec.limits), security_context=rights),
    )


def image(name: str) -> pb.ImageSpec:
    """In whole, as it was pulled: CRI-O has ideas of its own about short names, and checks signatures by the user's."""
    whole = image_pulls.full_name(name)
    return pb.ImageSpec(image=whole, user_specified_image=whole)


def key(labels: dict[str, str], attempt: int) -> ContainerKey:
    return ContainerKey(labels[POD], labels[CONTAINER], attempt)


def resources(limits: ResourceLimits) -> pb.LinuxContainerResources:
    found = pb.LinuxContainerResources(memory_limit_in_bytes=limits.memory or 0)
    if limits.cpu is not None:
        found.cpu_period, found.cpu_quota = PERIOD, quota(limits.cpu)
    found.cpu_shares = shares(limits)
    if limits == ResourceLimits():
        found.oom_score_adj = ENDS_FIRST
    return found


def security(wanted: Security) -> pb.LinuxContainerSecurityContext:
    return pb.LinuxContainerSecurityContext(
        capabilities=pb.Capability(add_capabilities=wanted.add, drop_capabilities=wanted.drop),
        privileged=wanted.privileged,
        run_as_user=_number(wanted.user),
        run_as_group=_number(wanted.group),
        supplemental_groups=wanted.groups,
        readonly_rootfs=wanted.read_only_root,
        no_new_privs=wanted.no_new_privileges,
        seccomp=_seccomp(wanted.seccomp or "RuntimeDefault"),  # an engine that is told nothing confines nothing
        masked_paths=() if wanted.privileged else MASKED,
        readonly_paths=() if wanted.privileged else READ_ONLY,
    )


def _number(value: int | None) -> pb.Int64Value | None:
    return None if value is None else pb.Int64Value(value=value)


def _seccomp(name: str) -> pb.SecurityProfile:
    kinds = {"RuntimeDefault": pb.SecurityProfile.RuntimeDefault, "Unconfined": pb.SecurityProfile.Unconfined}
    if name in kinds:
        return pb.SecurityProfile(profile_type=kinds[name])
    return pb.SecurityProfile(profile_type=pb.SecurityProfile.Localhost, localhost_ref=name)

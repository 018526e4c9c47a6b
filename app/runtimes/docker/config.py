"""Docker configuration of pods and containers, from what the agent passes to the docker runtime."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from app.runtimes.base import ContainerKey, ContainerSpec, Port, ResourceLimits, SandboxSpec, Security
from app.runtimes.engine.config import CONTAINER, ENDS_FIRST, NODE, PERIOD, POD, STDIN, TTY, quota, shares

PAUSE = "registry.k8s.io/pause:3.10"  # what holds a pod's namespaces, as Kubernetes has it
ATTEMPT = "jobplane.dev/attempt"
# Every log stays whole until its pod goes; `local` keeps bytes as they are, which Docker's own default does not.
LOG = {"Type": "local", "Config": {"max-size": "1000g", "max-file": "1", "compress": "false"}}
PODMAN_LOG = {"Type": "k8s-file", "Config": {"max-size": "1000g"}}
NO_LOG = {"Type": "none", "Config": {}}

Body = dict[str, Any]


def sandbox(spec: SandboxSpec, node: str, attempt: int) -> Body:
    host: Body = {
        "NetworkMode": "host" if spec.host_network else "bridge",
        "IpcMode": "host" if spec.host_ipc else "shareable",
        "LogConfig": NO_LOG,
        "OomScoreAdj": 0,
        "SecurityOpt": ["no-new-privileges"],
    }
    if spec.dns:
        host["Dns"] = [*spec.dns.servers]
        host["DnsSearch"] = [*spec.dns.searches] or ["."]  # else it takes the node's
        host["DnsOptions"] = [*spec.dns.options]
    if spec.ports:
        host["PortBindings"] = _bindings(spec.ports)
    return {
        "Image": PAUSE,
        "Hostname": "" if spec.host_network else spec.hostname,
        "Labels": {NODE: node, POD: spec.pod_uid, ATTEMPT: str(attempt), **_namespace_labels(spec)},
        "ExposedPorts": {each: {} for each in host.get("PortBindings", ())},
        "HostConfig": host,
    }


def _bindings(ports: Sequence[Port]) -> dict[str, list[Body]]:
    found: dict[str, list[Body]] = {}
    for each in ports:
        at = {"HostIp": each.address, "HostPort": str(each.on_node)}
        found.setdefault(f"{each.number}/{each.protocol.lower()}", []).append(at)
    return found


def _namespace_labels(spec: SandboxSpec) -> dict[str, str]:
    """Return what later agents have to know of a sandbox to make containers in it."""
    pid = "host" if spec.host_pid else "pod" if spec.share_pid else ""
    return {"jobplane.dev/pid": pid, "jobplane.dev/ipc": "host" if spec.host_ipc else ""}


def container(
    spec: ContainerSpec, sandbox_id: str, labels: Mapping[str, str], message: Path, user: str, log: Body
) -> Body:
    """`labels`: the sandbox's; `message`: the host's file for the termination message; `user`: see `base.Image`."""
    key, pod = spec.key, f"container:{sandbox_id}"
    mounts = [_mount(str(one.source), one.target, one.read_only) for one in spec.mounts]
    mounts.append(_mount(str(message), spec.termination_message_path, read_only=False))
    host: Body = {
        "NetworkMode": pod,
        "IpcMode": labels.get("jobplane.dev/ipc") or pod,
        "PidMode": {"host": "host", "pod": pod}.get(labels.get("jobplane.dev/pid", ""), ""),
        "Mounts": mounts,
        "Devices": [{"PathOnHost": path, "PathInContainer": path, "CgroupPermissions": "rwm"} for path in spec.devices],
        "LogConfig": log,
        **resources(spec.limits),
        **security(spec.security),
    }
    return {
        "Image": spec.image,
        "Env": [f"{name}={value}" for name, value in spec.env.items()],
        "WorkingDir": spec.working_dir,
        "User": user_of(spec.security, user),
        "OpenStdin": spec.stdin,
        "StdinOnce": spec.stdin_once,
        "Tty": spec.tty,
        "Healthcheck": {"Test": ["NONE"]},  # probes are the agent's
        "Labels": {
            NODE: labels[NODE],
            POD: key.pod_uid,
            CONTAINER: key.name,
            ATTEMPT: str(key.attempt),
            TTY: str(spec.tty),
            STDIN: str(spec.stdin),
        },
        "HostConfig": host,
        **({"Entrypoint": [*spec.command]} if spec.command else {}),
        **({"Cmd": [*spec.args]} if spec.args or spec.command else {}),
    }


def adapt_to_podman(body: Body, profile: str = "") -> None:
    """Of a sandbox or container. `profile`: its seccomp profile, which Podman wants to read itself."""
    host = body["HostConfig"]
    if host["NetworkMode"] != "bridge":
        host["UTSMode"] = host["NetworkMode"]  # else a container has a host's name of its own
    if profile.startswith("/"):
        options = [each for each in host["SecurityOpt"] if not each.startswith("seccomp=")]
        host["SecurityOpt"] = [*options, f"seccomp={profile}"]


def key(labels: Mapping[str, str]) -> ContainerKey:
    return ContainerKey(labels[POD], labels[CONTAINER], int(labels.get(ATTEMPT, "0")))


def name(node: str, pod_uid: str, *parts: object) -> str:
    """The same for every agent of the node, so that nothing is made twice."""
    return re.sub(r"[^\w.-]", "_", "_".join(map(str, ("jobplane", node, pod_uid, *parts))), flags=re.ASCII)


def resources(limits: ResourceLimits) -> Body:
    found: Body = {"CpuShares": shares(limits)}
    if limits.memory:
        found["Memory"] = found["MemorySwap"] = limits.memory  # the same: no swap
    if limits.cpu is not None:
        found["CpuPeriod"], found["CpuQuota"] = PERIOD, quota(limits.cpu)
    if limits == ResourceLimits():
        found["OomScoreAdj"] = ENDS_FIRST
    return found


def security(wanted: Security) -> Body:
    """Raises OSError if there is no such seccomp profile."""
    options = ["no-new-privileges"] if wanted.no_new_privileges else []
    if wanted.seccomp == "Unconfined":
        options.append("seccomp=unconfined")
    elif wanted.seccomp not in ("", "RuntimeDefault"):
        options.append(f"seccomp={Path(wanted.seccomp).read_text(encoding='utf-8')}")
    return {
        "CapAdd": [*wanted.add],
        "CapDrop": [*wanted.drop],
        "Privileged": wanted.privileged,
        "ReadonlyRootfs": wanted.read_only_root,
        "GroupAdd": [str(group) for group in wanted.groups],
        "SecurityOpt": options,
    }


def user_of(wanted: Security, of_image: str) -> str:
    """The engine takes no group without a user."""
    user = of_image.partition(":")[0] if wanted.user is None else str(wanted.user)
    if wanted.group is not None:
        return f"{user or 0}:{wanted.group}"
    return "" if wanted.user is None else user


def _mount(source: str, target: str, read_only: bool) -> Body:
    return {"Type": "bind", "Source": source, "Target": target, "ReadOnly": read_only}

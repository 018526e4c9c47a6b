"""OCI configuration of a container (config.json of a bundle), from what the agent passes to the oci runtime. Pure.

Limits are not in it: the shim puts the container into a cgroup that has them. Without crun's own cgroups nothing confines
devices, so a container's file system has none that work, and none can be made: only privileged containers may have CAP_MKNOD.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.runtimes.base import ContainerSpec, ResourceLimits, SandboxSpec, Security, StartError
from app.runtimes.engine.config import ENDS_FIRST, MASKED, READ_ONLY
from app.runtimes.oci.accounts import Account
from app.runtimes.oci.image_store import ImageConfig

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
VERSION = "1.0.2"
ROOTFS = "rootfs"
# Of who asks for nothing. Raw sockets are for pods with a network of their own only: the others would see the node's packets.
CAPABILITIES = (
    *("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "NET_BIND_SERVICE"),
    *("SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"),
)
ALL, UNCONFINED_DEVICES, RAW_SOCKETS = "ALL", "MKNOD", "NET_RAW"
SHM, SHM_SIZE = "/dev/shm", "65536k"  # noqa: S108 - the container's
_KINDS = {"net": "network"}  # as OCI calls what the kernel calls otherwise
_TERMINAL_GROUP = 5  # that of terminals, on every Linux


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What a container finds besides its spec and image.

    files:     of its pod, by where they are mounted.
    holder:    process whose namespaces its pod shares.
    cgroups:   folders of its cgroups, by what their hierarchy is called; version 2 has no name.
    bound:     capabilities that the agent may give.
    shm:       where shared memory of its pod is mounted; None: it has its own.
    has_network: the holder has a network of its own.
    is_mapped: in a user namespace; `has_groups`: which has more than one group.
    """

    pod: SandboxSpec
    files: Mapping[str, Path]
    holder: int
    cgroups: Mapping[str, Path]
    bound: Sequence[str]
    shm: Path | None = None
    has_network: bool = False
    is_mapped: bool = False
    has_groups: bool = True


def container(spec: ContainerSpec, image: ImageConfig, account: Account, around: Surroundings) -> dict[str, Any]:
    """Without seccomp, which depends on the capabilities. Raises StartError."""
    security, capabilities = spec.security, allowed(spec.security, around.bound, has_network=around.has_network)
    found: dict[str, Any] = {
        "ociVersion": VERSION,
        "root": {"path": ROOTFS, "readonly": security.read_only_root},
        "process": {
            "terminal": spec.tty,
            "user": {"uid": account.user, "gid": account.group, "additionalGids": [*account.groups]},
            "args": arguments(spec, image),
            "env": environment(spec, image, around.pod.hostname),
            "cwd": spec.working_dir or image.working_dir or "/",
            "capabilities": _sets(capabilities, account.user),
            "noNewPrivileges": security.no_new_privileges,
        },
        "mounts": [*_system_mounts(spec, around), *_mounts(spec, around)],
        "linux": {"namespaces": _namespaces(around)},
    }
    if spec.limits == ResourceLimits():
        found["process"]["oomScoreAdj"] = ENDS_FIRST
    if not around.pod.host_network and around.pod.hostname:
        found["hostname"] = around.pod.hostname
    if not security.privileged:
        found["linux"] |= {"maskedPaths": [*MASKED], "readonlyPaths": [*READ_ONLY]}
    return found


def arguments(spec: ContainerSpec, image: ImageConfig) -> list[str]:
    """As Kubernetes combines a container's command and arguments with its image's. Raises StartError."""
    if spec.command:
        return [*spec.command, *spec.args]
    found = [*(image.entrypoint or ()), *(spec.args or image.cmd or ())]
    if not found:
        raise StartError(f'no command specified, and image "{spec.image}" has none')
    return found


def environment(spec: ContainerSpec, image: ImageConfig, hostname: str) -> list[str]:
    own = dict(each.partition("=")[::2] for each in image.env or ())
    names = {"PATH": PATH, **({"HOSTNAME": hostname} if hostname else {}), **own, **spec.env}
    if spec.tty:
        names.setdefault("TERM", "xterm")
    return [f"{name}={value}" for name, value in names.items()]


def allowed(security: Security, bound: Sequence[str], *, has_network: bool) -> list[str]:
    """Capabilities, as `CAP_...`, sorted. `bound`: all that the agent may give. Raises StartError."""
    if security.privileged:
        return [*bound]
    if UNCONFINED_DEVICES in security.add:
        raise StartError(
            "capability MKNOD is not available: runtime oci confines no devices. Use a privileged container"
        )
    every = {each for each in bound if each != f"CAP_{UNCONFINED_DEVICES}"}
    usual = (*CAPABILITIES, *([RAW_SOCKETS] if has_network else []))
    kept = set() if ALL in security.drop else {f"CAP_{each}" for each in usual} & every
    kept -= {f"CAP_{each}" for each in security.drop}
    return sorted(kept | (every if ALL in security.add else {f"CAP_{each}" for each in security.add if each != ALL}))


def _sets(capabilities: Sequence[str], user: int) -> dict[str, Sequence[str]]:
    """Who is not root has none in effect, and may gain them by programs that have some."""
    effective = capabilities if user == 0 else []
    return {"bounding": capabilities, "effective": effective, "permitted": effective, "inheritable": [], "ambient": []}


def _namespaces(around: Surroundings) -> list[dict[str, str]]:
    """Its own, and those of the pod's holder. Without one, the node's."""
    pod, of_holder = around.pod, {"uts": not around.pod.host_network, "ipc": not around.pod.host_ipc}
    of_holder["net"] = around.has_network
    found = [{"type": "mount"}, {"type": "cgroup"}]
    found += [
        {"type": _KINDS.get(kind, kind), "path": f"/proc/{around.holder}/ns/{kind}"}
        for kind, own in of_holder.items()
        if own
    ]
    if pod.share_pid and not pod.host_pid:
        found.append({"type": "pid", "path": f"/proc/{around.holder}/ns/pid_for_children"})
    elif not pod.host_pid:
        found.append({"type": "pid"})
    return found


def _system_mounts(spec: ContainerSpec, around: Surroundings) -> list[dict[str, Any]]:
    kept = "rw" if spec.security.privileged else "ro"
    group = [f"gid={_TERMINAL_GROUP}"] if around.has_groups else []
    usual = ["nosuid", "noexec", "nodev"]
    sysfs = (
        ("sysfs", "sysfs", usual) if around.has_network or not around.is_mapped else ("bind", "/sys", ["rbind", *usual])
    )
    terminals = ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", *group]
    memory = (
        _mount(SHM, "bind", str(around.shm), ["bind", *usual])
        if around.shm
        else _mount(SHM, "tmpfs", "shm", [*usual, "mode=1777", f"size={SHM_SIZE}"])
    )
    found = [
        _mount("/proc", "proc", "proc", usual)
        if not around.pod.host_pid
        else _mount("/proc", "bind", "/proc", ["rbind"]),
        _mount("/dev", "tmpfs", "tmpfs", ["nosuid", "strictatime", "mode=755", "size=65536k"]),
        _mount("/dev/pts", "devpts", "devpts", terminals),
        memory,
        _mount("/sys", *sysfs[:2], [*sysfs[2], kept]),
    ]
    if not around.pod.host_ipc:
        found.append(_mount("/dev/mqueue", "mqueue", "mqueue", usual))
    if around.cgroups and "" not in around.cgroups and not around.is_mapped:
        found.append(_mount("/sys/fs/cgroup", "tmpfs", "cgroup", [*usual, "mode=755", "size=64k"]))
    for name, folder in around.cgroups.items() if not around.is_mapped else ():
        found.append(_mount(f"/sys/fs/cgroup/{name}".rstrip("/"), "bind", str(folder), ["rbind", *usual, "ro"]))
    return found


def _mounts(spec: ContainerSpec, around: Surroundings) -> list[dict[str, Any]]:
    """Those of the pod, then the spec's: outer ones come before inner ones."""
    taken = {each.target.rstrip("/") for each in spec.mounts}
    found = [_mount(at, "bind", str(file), ["rbind", "rw"]) for at, file in around.files.items() if at not in taken]
    for each in sorted(spec.mounts, key=lambda mount: mount.target.rstrip("/").count("/")):
        options = ["rbind", "rprivate", "ro" if each.read_only else "rw"]
        found.append(_mount(each.target, "bind", str(each.source), options))
    found += [_mount(path, "bind", path, ["rbind", "rw"]) for path in spec.devices]
    return found


def _mount(at: str, kind: str, source: str, options: Sequence[str]) -> dict[str, Any]:
    return {"destination": at, "type": kind, "source": source, "options": [*options]}

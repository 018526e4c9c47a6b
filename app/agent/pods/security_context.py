"""Security context and limits of a container, merged from the pod's and its own as Kubernetes does.

What a runtime cannot give is refused if the container would have more rights than it asked for, or would miss some; a
mere restriction that the runtime does not know is an event, and the container runs.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from app.agent.pods.environment import ContainerConfigError
from app.kinds.pod.container import Container
from app.kinds.pod.pod import Pod
from app.kinds.pod.security import PodSecurityContext, SeccompProfile, SecurityContext
from app.machinery import quantity
from app.machinery.base import Quantity
from app.plans.kubelet.pod_events import full_name
from app.runtimes.base import ResourceLimits, RuntimeInfo, Security

_NO_POD, _NO_CONTAINER = PodSecurityContext(), SecurityContext()
NOTHING = Security()
UNLIMITED = ResourceLimits()


def limits(container: Container) -> ResourceLimits:
    resources = container.resources
    if resources is None or not (resources.limits or resources.requests):
        return UNLIMITED
    return ResourceLimits(
        cpu=_amount(resources.limits, "cpu", 1000),
        memory=_amount(resources.limits, "memory", 1),
        cpu_request=_amount(resources.requests, "cpu", 1000),
    )


def _amount(amounts: Mapping[str, Quantity], name: str, times: int) -> int | None:
    """Rounded up; 0 is no bound, as in Kubernetes."""
    return int(-(-quantity.parse(amounts[name]) * times // 1)) or None if name in amounts else None


def security(pod: Pod, container: Container, profiles: Path) -> Security:
    """`profiles`: the folder in which seccomp profiles of type Localhost are."""
    if pod.spec.security_context is None and container.security_context is None:
        return NOTHING
    whole, own = pod.spec.security_context or _NO_POD, container.security_context or _NO_CONTAINER
    fs_group = () if whole.fs_group is None else (whole.fs_group,)
    capabilities = own.capabilities
    return Security(
        user=_first(own.run_as_user, whole.run_as_user),
        group=_first(own.run_as_group, whole.run_as_group),
        groups=tuple(dict.fromkeys((*whole.supplemental_groups, *fs_group))),
        add=capabilities.add if capabilities else (),
        drop=capabilities.drop if capabilities else (),
        privileged=bool(own.privileged),
        read_only_root=bool(own.read_only_root_filesystem),
        no_new_privileges=own.allow_privilege_escalation is False,
        seccomp=_seccomp(own.seccomp_profile or whole.seccomp_profile, profiles),
    )


def _first(own: int | None, whole: int | None) -> int | None:
    return whole if own is None else own


def _seccomp(profile: SeccompProfile | None, profiles: Path) -> str:
    if profile is None:
        return ""
    if profile.type != "Localhost":
        return profile.type
    name = Path(profile.localhost_profile)
    if name.is_absolute() or ".." in name.parts:
        raise ContainerConfigError(f"seccomp profile {profile.localhost_profile} must be a relative path")
    return str(profiles / name)


def check(pod: Pod, container: Container, wanted: Security, info: RuntimeInfo, image_user: str) -> None:
    """Raises ContainerConfigError if the container may not run like this here."""
    if not info.runs_commands:
        return
    _check_root(pod, container, wanted, info, image_user)
    if not info.security:
        for refusal in _beyond(wanted, info):
            raise ContainerConfigError(f"container {container.name}: {refusal}")


def _check_root(pod: Pod, container: Container, wanted: Security, info: RuntimeInfo, image_user: str) -> None:
    whole, own = pod.spec.security_context or _NO_POD, container.security_context or _NO_CONTAINER
    if not (whole.run_as_non_root if own.run_as_non_root is None else own.run_as_non_root):
        return
    who = f'(pod: "{full_name(pod)}", container: {container.name})'
    if wanted.user is not None:
        if wanted.user == 0:
            raise ContainerConfigError(f"container's runAsUser breaks non-root policy {who}")
        return
    user = image_user.partition(":")[0] if info.images else str(os.geteuid())
    if user in ("", "0", "root"):
        raise ContainerConfigError(f"container has runAsNonRoot and image will run as root {who}")
    if not user.isdigit():
        raise ContainerConfigError(
            f"container has runAsNonRoot and image has non-numeric user ({user}), cannot verify user is non-root {who}"
        )


def _beyond(wanted: Security, info: RuntimeInfo) -> Iterator[str]:
    """Settings that an agent without the right to change them cannot apply."""
    user, group = (
        (0, 0) if info.images else (os.geteuid(), os.getegid())
    )  # containers of images have users of their own
    may_change = info.images or os.geteuid() == 0
    if wanted.user not in (None, user):
        yield f"this node's runtime cannot run it as user {wanted.user}, only as {user}"
    if wanted.group not in (None, group):
        yield f"this node's runtime cannot run it as group {wanted.group}, only as {group}"
    if wanted.privileged and not may_change:
        yield "this node's runtime cannot run privileged containers"
    if wanted.add and not may_change:
        yield f"this node's runtime cannot add capabilities ({', '.join(wanted.add)})"


def find_unenforced(wanted: Security, info: RuntimeInfo) -> list[str]:
    """Restrictions that will not hold, by the names of their fields."""
    if info.security or not info.runs_commands or wanted is NOTHING:
        return []
    if info.images:  # it has only one user, and the rest holds
        return ["supplementalGroups"] if wanted.groups else []
    fields = {
        "capabilities.drop": wanted.drop,
        "readOnlyRootFilesystem": wanted.read_only_root,
        "allowPrivilegeEscalation": wanted.no_new_privileges,
        "seccompProfile": wanted.seccomp not in ("", "Unconfined"),
        "supplementalGroups": wanted.groups,
    }
    return [name for name, is_asked in fields.items() if is_asked]

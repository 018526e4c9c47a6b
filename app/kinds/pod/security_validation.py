"""Validation of security contexts. Part of `app.kinds.pod.pod_validation`."""

import re
from collections.abc import Iterator

from app.kinds.pod.pod_schema import PodSpec
from app.kinds.pod.security import AppArmorProfile, PodSecurityContext, SeccompProfile, SecurityContext, Sysctl
from app.kinds.pod.volume_validation import relative_path
from app.machinery import name_validation
from app.machinery.errors import Cause, duplicate, forbidden, invalid, not_supported, required, too_long

PROFILES = ("Localhost", "RuntimeDefault", "Unconfined")

_SEGMENT = "[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_SYSCTL = rf"^({_SEGMENT}[\./])*{_SEGMENT}$"
_SYSCTL_RE = re.compile(rf"{_SEGMENT}([\./]{_SEGMENT})*")  # the same names, without the backtracking


def validate_security(context: SecurityContext | None, host_users: bool, path: str) -> Iterator[Cause]:
    """One container's."""
    if context is None:
        return
    yield from _ids(path, runAsUser=context.run_as_user, runAsGroup=context.run_as_group)
    yield from _choice(context.proc_mount, ("Default", "Unmasked"), f"{path}.procMount")
    if context.proc_mount == "Unmasked" and host_users:
        text = "`hostUsers` must be false to use `Unmasked`"
        yield invalid(f"{path}.procMount", context.proc_mount, text)
    yield from _seccomp(context.seccomp_profile, f"{path}.seccompProfile")
    yield from _app_armor(context.app_armor_profile, f"{path}.appArmorProfile")
    if context.allow_privilege_escalation is False:
        text = "cannot set `allowPrivilegeEscalation` to false and"
        if context.privileged:
            yield invalid(path, context, f"{text} `privileged` to true")
        if context.capabilities and "CAP_SYS_ADMIN" in context.capabilities.add:
            yield invalid(path, context, f"{text} `capabilities.Add` CAP_SYS_ADMIN")


def validate_pod_security(spec: PodSpec, path: str) -> Iterator[Cause]:
    """The pod's, and what of its spec concerns the host's namespaces."""
    if spec.share_process_namespace and spec.host_pid:
        text = "ShareProcessNamespace and HostPID cannot both be enabled"
        yield invalid(f"{path}.shareProcessNamespace", True, text)
    if spec.host_users is False:
        for wire, used in (("hostNetwork", spec.host_network), ("HostPID", spec.host_pid), ("HostIPC", spec.host_ipc)):
            if used:
                yield forbidden(f"{path}.{wire}", "when `pod.Spec.HostUsers` is false")
    if spec.security_context:
        yield from _pod_context(spec.security_context, f"{path}.securityContext")


def _pod_context(context: PodSecurityContext, path: str) -> Iterator[Cause]:
    yield from _ids(path, fsGroup=context.fs_group, runAsUser=context.run_as_user, runAsGroup=context.run_as_group)
    for index, group in enumerate(context.supplemental_groups):
        yield from _ids(path, **{f"supplementalGroups[{index}]": group})
    yield from _sysctls(context.sysctls, f"{path}.sysctls")
    for wire, value, allowed in (
        ("fsGroupChangePolicy", context.fs_group_change_policy, ("Always", "OnRootMismatch")),
        ("supplementalGroupsPolicy", context.supplemental_groups_policy, ("Merge", "Strict")),
        ("seLinuxChangePolicy", context.se_linux_change_policy, ("MountOption", "Recursive")),
    ):
        yield from _choice(value, allowed, f"{path}.{wire}")
    yield from _seccomp(context.seccomp_profile, f"{path}.seccompProfile")
    yield from _app_armor(context.app_armor_profile, f"{path}.appArmorProfile")


def _ids(path: str, **ids: int | None) -> Iterator[Cause]:
    for wire, value in ids.items():
        for text in name_validation.user_id(value) if value is not None else ():
            yield invalid(f"{path}.{wire}", value, text)


def _choice(value: str, allowed: tuple[str, ...], path: str) -> Iterator[Cause]:
    if value and value not in allowed:
        yield not_supported(path, value, allowed)


def _seccomp(profile: SeccompProfile | None, path: str) -> Iterator[Cause]:
    if profile is None:
        return
    yield from _profile_type(profile.type, f"{path}.type", "type is required when seccompProfile is set")
    if profile.type != "Localhost":
        if profile.localhost_profile:
            text = "can only be set when seccomp type is Localhost"
            yield invalid(f"{path}.localhostProfile", profile, text)
    elif not profile.localhost_profile:
        yield required(f"{path}.localhostProfile", "must be set when seccomp type is Localhost")
    else:
        yield from relative_path(profile.localhost_profile, f"{path}.localhostProfile")


def _app_armor(profile: AppArmorProfile | None, path: str) -> Iterator[Cause]:
    if profile is None:
        return
    yield from _profile_type(profile.type, f"{path}.type", "type is required when appArmorProfile is set")
    path, name = f"{path}.localhostProfile", profile.localhost_profile
    if profile.type != "Localhost":
        if name and profile.type in PROFILES:
            yield invalid(path, name, "can only be set when AppArmor type is Localhost")
        return
    if name != name.strip():
        yield invalid(path, name, "must not be padded with whitespace")
    elif not name:
        yield required(path, "must be set when AppArmor type is Localhost")
    if len(name.encode()) > 4095:
        yield too_long(path, 4095)


def _profile_type(value: str, path: str, missing: str) -> Iterator[Cause]:
    if not value:
        yield required(path, missing)
    yield from _choice(value, PROFILES, path)


def _sysctls(sysctls: tuple[Sysctl, ...], path: str) -> Iterator[Cause]:
    seen: set[str] = set()
    for index, sysctl in enumerate(sysctls):
        here = f"{path}[{index}].name"
        if not sysctl.name:
            yield required(here)
        elif len(sysctl.name) > 253 or not _SYSCTL_RE.fullmatch(sysctl.name):
            yield invalid(here, sysctl.name, f"must have at most 253 characters and match regex {_SYSCTL}")
        elif sysctl.name in seen:
            yield duplicate(here, sysctl.name)
        seen.add(sysctl.name)

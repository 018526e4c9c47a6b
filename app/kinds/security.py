"""Who a process runs as and what it may do."""

from typing import Annotated

from app.kinds.base import (
    Int64,
    Opaque,
    Struct,
    at,
)


class SELinuxOptions(Struct):
    """TODO-DOC"""

    user: Annotated[str, at(1)] = ""
    role: Annotated[str, at(2)] = ""
    type: Annotated[str, at(3)] = ""
    level: Annotated[str, at(4)] = ""


class SeccompProfile(Struct):
    """TODO-DOC"""

    type: Annotated[str, at(1)] = ""
    localhost_profile: Annotated[str, at(2)] = ""


class AppArmorProfile(Struct):
    """TODO-DOC"""

    type: Annotated[str, at(1)] = ""
    localhost_profile: Annotated[str, at(2)] = ""


class Capabilities(Struct):
    """TODO-DOC"""

    add: Annotated[tuple[str, ...], at(1)] = ()
    drop: Annotated[tuple[str, ...], at(2)] = ()


class Sysctl(Struct):
    """TODO-DOC"""

    name: Annotated[str, at(1)] = ""
    value: Annotated[str, at(2)] = ""


class SecurityContext(Struct):
    """TODO-DOC"""

    capabilities: Annotated[Capabilities | None, at(1)] = None
    privileged: Annotated[bool | None, at(2)] = None
    se_linux_options: Annotated[SELinuxOptions | None, at(3)] = None
    run_as_user: Annotated[Int64 | None, at(4)] = None
    run_as_non_root: Annotated[bool | None, at(5)] = None
    read_only_root_filesystem: Annotated[bool | None, at(6)] = None
    allow_privilege_escalation: Annotated[bool | None, at(7)] = None
    run_as_group: Annotated[Int64 | None, at(8)] = None
    proc_mount: Annotated[str, at(9)] = ""
    windows_options: Annotated[Opaque | None, at(10)] = None
    seccomp_profile: Annotated[SeccompProfile | None, at(11)] = None
    app_armor_profile: Annotated[AppArmorProfile | None, at(12)] = None


class PodSecurityContext(Struct):
    """TODO-DOC"""

    se_linux_options: Annotated[SELinuxOptions | None, at(1)] = None
    run_as_user: Annotated[Int64 | None, at(2)] = None
    run_as_non_root: Annotated[bool | None, at(3)] = None
    supplemental_groups: Annotated[tuple[Int64, ...], at(4)] = ()
    fs_group: Annotated[Int64 | None, at(5)] = None
    run_as_group: Annotated[Int64 | None, at(6)] = None
    sysctls: Annotated[tuple[Sysctl, ...], at(7)] = ()
    windows_options: Annotated[Opaque | None, at(8)] = None
    fs_group_change_policy: Annotated[str, at(9)] = ""
    seccomp_profile: Annotated[SeccompProfile | None, at(10)] = None
    app_armor_profile: Annotated[AppArmorProfile | None, at(11)] = None
    supplemental_groups_policy: Annotated[str, at(12)] = ""
    se_linux_change_policy: Annotated[str, at(13)] = ""

"""Security contexts: the user of a process and what it may do."""

from typing import Annotated

from app.machinery.base import (
    TOLD,
    Int64,
    Struct,
    at,
)


class WindowsSecurityContextOptions(Struct):
    """Settings for Windows."""

    gmsa_credential_spec_name: Annotated[str | None, at(1, "Name of the credential spec.")] = None
    gmsa_credential_spec: Annotated[str | None, at(2, "The credential spec itself.")] = None
    run_as_user_name: Annotated[str | None, at(3, "User that processes run as.")] = None
    host_process: Annotated[bool | None, at(4, "True: it runs on the host itself; for all containers or none.")] = None


class SELinuxOptions(Struct):
    """An SELinux context, in its four parts."""

    user: Annotated[str, at(1, "User part.")] = ""
    role: Annotated[str, at(2, "Role part.")] = ""
    type: Annotated[str, at(3, "Type part.")] = ""
    level: Annotated[str, at(4, "Level part.")] = ""


class SeccompProfile(Struct):
    """Which seccomp profile filters system calls."""

    type: Annotated[
        str,
        at(
            1,
            "Localhost, RuntimeDefault or Unconfined.",
            required=True,
            enum=("Localhost", "RuntimeDefault", "Unconfined"),
        ),
    ] = ""
    localhost_profile: Annotated[str, at(2, "File of the profile on the node, for Localhost.")] = ""


class AppArmorProfile(Struct):
    """Which AppArmor profile confines a process."""

    type: Annotated[
        str,
        at(
            1,
            "Localhost, RuntimeDefault or Unconfined.",
            required=True,
            enum=("Localhost", "RuntimeDefault", "Unconfined"),
        ),
    ] = ""
    localhost_profile: Annotated[str, at(2, "Name of a profile loaded on the node, for Localhost.")] = ""


class Capabilities(Struct):
    """Changes to the runtime's usual set of Linux capabilities."""

    add: Annotated[tuple[str, ...], at(1, "Capabilities to add.")] = ()
    drop: Annotated[tuple[str, ...], at(2, "Capabilities to take away.")] = ()


class Sysctl(Struct):
    """A kernel parameter of the pod's namespaces."""

    name: Annotated[str, at(1, "Name of the parameter.", required=True)] = ""
    value: Annotated[str, at(2, "Value to give it.", required=True)] = TOLD


class SecurityContext(Struct):
    """Who one container runs as and what it may do; wins over the pod's own settings."""

    capabilities: Annotated[Capabilities | None, at(1, "Linux capabilities to add and drop.")] = None
    privileged: Annotated[bool | None, at(2, "True: as powerful as root on the node.")] = None
    se_linux_options: Annotated[SELinuxOptions | None, at(3, "SELinux context.")] = None
    run_as_user: Annotated[Int64 | None, at(4, "UID that the process starts as.")] = None
    run_as_non_root: Annotated[bool | None, at(5, "True: refuse to start as UID 0.")] = None
    read_only_root_filesystem: Annotated[bool | None, at(6, "True: the root file system cannot be written to.")] = None
    allow_privilege_escalation: Annotated[
        bool | None, at(7, "False: no process may gain more privileges than its parent.")
    ] = None
    run_as_group: Annotated[Int64 | None, at(8, "GID that the process starts as.")] = None
    proc_mount: Annotated[str, at(9, "How /proc is mounted: Default or Unmasked.", enum=("Default", "Unmasked"))] = ""
    windows_options: Annotated[WindowsSecurityContextOptions | None, at(10, "Settings for Windows.")] = None
    seccomp_profile: Annotated[SeccompProfile | None, at(11, "Seccomp profile.")] = None
    app_armor_profile: Annotated[AppArmorProfile | None, at(12, "AppArmor profile.")] = None


class PodSecurityContext(Struct):
    """Who the pod's containers run as, unless they say otherwise."""

    se_linux_options: Annotated[SELinuxOptions | None, at(1, "SELinux context of all containers.")] = None
    run_as_user: Annotated[Int64 | None, at(2, "UID that processes start as.")] = None
    run_as_non_root: Annotated[bool | None, at(3, "True: refuse to start as UID 0.")] = None
    supplemental_groups: Annotated[
        tuple[Int64, ...], at(4, "Further GIDs of the first process of each container.")
    ] = ()
    fs_group: Annotated[Int64 | None, at(5, "GID that owns the pod's volumes, where their kind allows.")] = None
    run_as_group: Annotated[Int64 | None, at(6, "GID that processes start as.")] = None
    sysctls: Annotated[tuple[Sysctl, ...], at(7, "Kernel parameters to set.")] = ()
    windows_options: Annotated[WindowsSecurityContextOptions | None, at(8, "Settings for Windows.")] = None
    fs_group_change_policy: Annotated[
        str,
        at(9, "When ownership of a volume is changed: Always or OnRootMismatch.", enum=("Always", "OnRootMismatch")),
    ] = ""
    seccomp_profile: Annotated[SeccompProfile | None, at(10, "Seccomp profile of all containers.")] = None
    app_armor_profile: Annotated[AppArmorProfile | None, at(11, "AppArmor profile of all containers.")] = None
    supplemental_groups_policy: Annotated[
        str, at(12, "Whether groups of the image count as well: Merge or Strict.", enum=("Merge", "Strict"))
    ] = ""
    se_linux_change_policy: Annotated[str, at(13, "How volumes get their SELinux label: MountOption or Recursive.")] = (
        ""
    )

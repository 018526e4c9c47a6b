"""Seccomp profiles of containers, in the form that crun takes, and filters that crun has made of them. Called by the oci runtime.

Profiles are written as Docker has them: rules that hold for some architectures, capabilities or kernels only. The default one
is that of the machine, from Debian's package golang-github-containers-common, which skopeo brings. It is Podman's, which lets
containers make user namespaces, and in them have all capabilities; `tighten` makes it as narrow as containerd's and Docker's.
"""

import base64
import hashlib
import json
import platform
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

DEFAULTS = (Path("/usr/share/containers/seccomp.json"), Path("/etc/containers/seccomp.json"))
RUNTIME_DEFAULT, UNCONFINED = "RuntimeDefault", "Unconfined"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "i686": "x86"}
_NAMES = {"amd64": "SCMP_ARCH_X86_64", "arm64": "SCMP_ARCH_AARCH64", "arm": "SCMP_ARCH_ARM", "x86": "SCMP_ARCH_X86"}
FILTER, ANNOTATION = "seccomp.bpf", "run.oci.seccomp_bpf_data"  # crun's names of them
MOST_FILTERS = 64  # of 10 kB
NOTHING = {
    "defaultAction": "SCMP_ACT_ERRNO"
}  # beside a filter; by itself it allows no call, should crun not take the filter
_RULE = ("names", "action", "errnoRet", "args")
# What containerd's and Docker's default profiles refuse to everybody, and to who lacks CAP_SYS_ADMIN.
_NEVER_TEXT = "add_key io_uring_enter io_uring_register io_uring_setup keyctl request_key userfaultfd"
_ADMIN_TEXT = """
    bpf clone clone3 fanotify_init fsconfig fsmount fsopen fspick lookup_dcookie mount mount_setattr move_mount name_to_handle_at
    open_tree perf_event_open quotactl quotactl_fd setdomainname sethostname setns syslog umount umount2 unshare
"""
_NEVER, _OF_ADMIN = frozenset(_NEVER_TEXT.split()), frozenset(_ADMIN_TEXT.split())
_NAMESPACES = 0x7E020000  # CLONE_NEW*, as clone's flags have them
_EPERM, _ENOSYS = 1, 38


class Filters:
    """Compiled profiles: to compile one is more than half of what crun does to start a container. Of this agent's life only."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def find(self, digest: str) -> str:
        """The filter of a profile as crun's annotation has it; empty if there was none so far."""
        return self._known.get(digest, "")

    def keep(self, digest: str, path: Path) -> None:
        """Take the filter that crun has made for a container, if it is still there."""
        with suppress(OSError):
            if digest not in self._known and len(self._known) < MOST_FILTERS and (content := path.read_bytes()):
                self._known[digest] = base64.b64encode(content).decode()


def default_path() -> Path | None:
    """Where the machine's default profile is; None if it has none."""
    return next((each for each in DEFAULTS if each.exists()), None)


class Rules(NamedTuple):
    """A profile as crun takes it, and its digest."""

    profile: Mapping[str, Any]
    digest: str


def rules(path: Path, capabilities: Sequence[str], *, is_default: bool) -> Rules:
    """What holds of a profile, as it is now, for a container with these capabilities (CAP_...). Raises OSError, ValueError."""
    return _rules(path, path.stat().st_mtime_ns, tuple(capabilities), is_default)


@lru_cache(maxsize=MOST_FILTERS)
def _rules(path: Path, _changed: int, capabilities: tuple[str, ...], is_default: bool) -> Rules:
    found = resolve(_read(path), capabilities)
    if is_default:
        found = tighten(found, capabilities)
    return Rules(found, hashlib.sha256(msgspec.json.encode(found)).hexdigest())


def _read(path: Path) -> Mapping[str, Any]:
    found = json.loads(path.read_bytes())
    if not isinstance(found, dict):
        raise ValueError(f"seccomp profile {path} is no object")
    return found


def resolve(profile: Mapping[str, Any], capabilities: Collection[str], machine: str = "") -> dict[str, Any]:
    """What holds of a profile for a container with these capabilities (CAP_...) on this machine."""
    machine = _ARCHITECTURES.get(machine or platform.machine(), machine or platform.machine())
    rules = [each for each in profile.get("syscalls") or () if _holds(each, capabilities, machine)]
    found: dict[str, Any] = {
        "defaultAction": profile.get("defaultAction", "SCMP_ACT_ERRNO"),
        "architectures": _architectures(profile, machine),
        "syscalls": [{name: each[name] for name in _RULE if each.get(name) not in (None, [])} for each in rules],
    }
    if "defaultErrnoRet" in profile:
        found["defaultErrnoRet"] = profile["defaultErrnoRet"]
    if profile.get("flags"):
        found["flags"] = profile["flags"]
    return found


def tighten(resolved: Mapping[str, Any], capabilities: Collection[str]) -> dict[str, Any]:
    """The machine's default profile, as `resolve` returns it, without what engines refuse. New threads and processes stay."""
    is_admin = "CAP_SYS_ADMIN" in capabilities
    refused = _NEVER if is_admin else _NEVER | _OF_ADMIN
    rules = [
        {**each, "names": [name for name in each["names"] if name not in refused]} for each in resolved["syscalls"]
    ]
    rules = [each for each in rules if each["names"]]
    rules.append({"names": sorted(refused - {"clone", "clone3"}), "action": "SCMP_ACT_ERRNO", "errnoRet": _EPERM})
    if not is_admin:
        flags = {"index": 0, "value": _NAMESPACES, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"}
        rules.append({"names": ["clone"], "action": "SCMP_ACT_ALLOW", "args": [flags]})
        # Its flags cannot be looked at: C libraries go on with clone.
        rules.append({"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": _ENOSYS})
    return {**resolved, "syscalls": rules}


def _architectures(profile: Mapping[str, Any], machine: str) -> list[str]:
    if "architectures" in profile:
        return [*profile["architectures"]]
    own = _NAMES.get(machine, "")
    subs = [each.get("subArchitectures") or () for each in profile.get("archMap") or () if each["architecture"] == own]
    return [own, *(subs[0] if subs else ())] if own else []


def _holds(rule: Mapping[str, Any], capabilities: Collection[str], machine: str) -> bool:
    """Rules of a least kernel count: no kernel that Jobplane runs on is older than 4.8, the newest that is named."""
    wanted, unwanted = rule.get("includes") or {}, rule.get("excludes") or {}
    arches, caps = wanted.get("arches") or (), wanted.get("caps") or ()
    if (arches and machine not in arches) or (caps and not set(caps) <= set(capabilities)):
        return False
    return machine not in (unwanted.get("arches") or ()) and not set(unwanted.get("caps") or ()) & set(capabilities)

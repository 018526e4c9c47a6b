"""Controls of the level restricted, beyond baseline: what hardens a pod. Used by `evaluation`.

Source: the Pod Security Standards' table, and k8s.io/pod-security-admission for versions, words and order.
"""

from msgspec.structs import fields

from app.kinds.pod.pod_schema import PodSpec
from app.kinds.pod.volume import Volume
from app.plans.admission.pod_security.baseline import check_proc_mount, check_seccomp
from app.plans.admission.pod_security.control import (
    Annotations,
    Check,
    Control,
    Violation,
    containers_of,
    context_of,
    has_user_namespace,
    is_windows,
    name_containers,
    name_setters,
    names_where,
    plural,
    pod_context_of,
    quoted,
)

_NET_BIND_SERVICE = "NET_BIND_SERVICE"
_ALLOWED_SOURCES = frozenset(
    {"config_map", "csi", "downward_api", "empty_dir", "ephemeral", "image", "persistent_volume_claim"}
    | {"projected", "secret"}
)
_FORBIDDEN_SOURCES = {
    each.name: each.encode_name for each in fields(Volume) if each.name not in {"name", *_ALLOWED_SOURCES}
}


def check_privilege_escalation(_: Annotations, spec: PodSpec) -> Violation | None:
    bad = names_where(spec, lambda each: context_of(each).allow_privilege_escalation is not False)
    detail = f"{name_containers(bad)} must set securityContext.allowPrivilegeEscalation=false"
    return Violation("allowPrivilegeEscalation != false", detail) if bad else None


def check_capabilities(_: Annotations, spec: PodSpec) -> Violation | None:
    given = {each.name: context_of(each).capabilities for each in containers_of(spec)}
    keeping = [name for name, each in given.items() if each is None or "ALL" not in each.drop]
    added = {name: set(each.add) - {_NET_BIND_SERVICE} for name, each in given.items() if each}
    adding = [name for name, capabilities in added.items() if capabilities]
    faults = []
    if keeping:
        faults.append(f'{name_containers(keeping)} must set securityContext.capabilities.drop=["ALL"]')
    if adding:
        listed = quoted(sorted(set().union(*added.values())))
        faults.append(f"{name_containers(adding)} must not include {listed} in securityContext.capabilities.add")
    return Violation("unrestricted capabilities", "; ".join(faults)) if faults else None


def check_volumes(_: Annotations, spec: PodSpec) -> Violation | None:
    bad = [each for each in spec.volumes if all(getattr(each, source) is None for source in _ALLOWED_SOURCES)]
    if not bad:
        return None
    names, sources = [each.name for each in bad], sorted({_source_of(each) for each in bad})
    uses, what = "uses" if len(bad) == 1 else "use", plural("restricted volume type", sources)
    detail = f"{plural('volume', names)} {quoted(names)} {uses} {what} {quoted(sources)}"
    return Violation("restricted volume types", detail)


def _source_of(volume: Volume) -> str:
    set_sources = (wire for name, wire in _FORBIDDEN_SOURCES.items() if getattr(volume, name) is not None)
    return next(set_sources, "unknown")


def check_run_as_non_root(_: Annotations, spec: PodSpec) -> Violation | None:
    of_pod = pod_context_of(spec).run_as_non_root
    explicit = names_where(spec, lambda each: context_of(each).run_as_non_root is False)
    if who := name_setters(pod=of_pod is False, names=explicit):
        return Violation("runAsNonRoot != true", f"{who} must not set securityContext.runAsNonRoot=false")
    unset = names_where(spec, lambda each: context_of(each).run_as_non_root is None) if not of_pod else []
    detail = f"pod or {name_containers(unset)} must set securityContext.runAsNonRoot=true"
    return Violation("runAsNonRoot != true", detail) if unset else None


def check_run_as_user(_: Annotations, spec: PodSpec) -> Violation | None:
    names = names_where(spec, lambda each: context_of(each).run_as_user == 0)
    who = name_setters(pod=pod_context_of(spec).run_as_user == 0, names=names)
    return Violation("runAsUser=0", f"{who} must not set runAsUser=0") if who else None


def check_seccomp_is_set(annotations: Annotations, spec: PodSpec) -> Violation | None:
    """Besides what baseline forbids, none at all: then it says whose is missing."""
    if violation := check_seccomp(annotations, spec):
        return violation
    if pod_context_of(spec).seccomp_profile is not None:
        return None
    unset = names_where(spec, lambda each: context_of(each).seccomp_profile is None)
    detail = f'pod or {name_containers(unset)} must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost"'
    return Violation("seccompProfile", detail) if unset else None


def _unless_windows(check: Check) -> Check:
    """Pods that say that they are for Windows cannot set the field."""
    return lambda annotations, spec: None if is_windows(spec) else check(annotations, spec)


def _unless_user_namespace(check: Check) -> Check:
    return lambda annotations, spec: None if has_user_namespace(spec) else check(annotations, spec)


CONTROLS = (
    Control(
        "allowPrivilegeEscalation",
        ((8, check_privilege_escalation), (25, _unless_windows(check_privilege_escalation))),
    ),
    Control(
        "capabilities_restricted",
        ((22, check_capabilities), (25, _unless_windows(check_capabilities))),
        replaces="capabilities_baseline",
    ),
    Control("procMount_restricted", ((35, check_proc_mount),), replaces="procMount"),
    Control("restrictedVolumes", ((0, check_volumes),), replaces="hostPathVolumes"),
    Control("runAsNonRoot", ((0, check_run_as_non_root), (35, _unless_user_namespace(check_run_as_non_root)))),
    Control("runAsUser", ((23, check_run_as_user), (35, _unless_user_namespace(check_run_as_user)))),
    Control(
        "seccompProfile_restricted",
        ((19, check_seccomp_is_set), (25, _unless_windows(check_seccomp_is_set))),
        replaces="seccompProfile_baseline",
    ),
)

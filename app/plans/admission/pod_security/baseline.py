"""Controls of the level baseline: what gives a pod a way out of its container. Used by `evaluation`.

Source: the Pod Security Standards' table, and k8s.io/pod-security-admission for versions, words and order.
"""

from app.kinds.pod.pod_schema import PodSpec
from app.kinds.pod.probe import LifecycleHandler, Probe
from app.kinds.pod.security import SELinuxOptions
from app.plans.admission.pod_security.control import (
    Annotations,
    AnyContainer,
    Check,
    Control,
    Violation,
    containers_of,
    context_of,
    has_user_namespace,
    name_containers,
    name_setters,
    names_where,
    plural,
    pod_context_of,
    quoted,
)

_CONFINED = ("RuntimeDefault", "Localhost")
_DEFAULT_CAPABILITIES = frozenset(
    {"AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "SETFCAP"}
    | {"SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"}
)
_APP_ARMOR_ANNOTATION = "container.apparmor.security.beta.kubernetes.io/"
_SECCOMP_POD_ANNOTATION = "seccomp.security.alpha.kubernetes.io/pod"
_SECCOMP_ANNOTATION = "container.seccomp.security.alpha.kubernetes.io/"


def check_app_armor(annotations: Annotations, spec: PodSpec) -> Violation | None:
    of_pod = pod_context_of(spec).app_armor_profile
    by_name = {each.name: context_of(each).app_armor_profile for each in containers_of(spec)}
    bad = {name: profile.type for name, profile in by_name.items() if profile and profile.type not in _CONFINED}
    pod_is_bad = of_pod is not None and of_pod.type not in _CONFINED
    values = sorted({*bad.values(), *((of_pod.type,) if of_pod and pod_is_bad else ())})
    noted = sorted(
        f'{key}="{value}"'
        for key, value in annotations.items()
        if key.startswith(_APP_ARMOR_ANNOTATION)
        and value not in ("", "runtime/default")
        and not value.startswith("localhost/")
    )
    setters = [name_setters(pod=pod_is_bad, names=list(bad)), plural("annotation", noted) if noted else ""]
    if not any(setters):
        return None
    who, what = " and ".join(filter(None, setters)), [*values, *noted]
    detail = f"{who} must not set AppArmor profile type to {quoted(what)}"
    return Violation(plural("forbidden AppArmor profile", what), detail)


def check_capabilities(_: Annotations, spec: PodSpec) -> Violation | None:
    added = {each.name: _added(each) - _DEFAULT_CAPABILITIES for each in containers_of(spec)}
    bad = [name for name, capabilities in added.items() if capabilities]
    if not bad:
        return None
    listed = quoted(sorted(frozenset().union(*added.values())))
    detail = f"{name_containers(bad)} must not include {listed} in securityContext.capabilities.add"
    return Violation("non-default capabilities", detail)


def _added(container: AnyContainer) -> frozenset[str]:
    capabilities = context_of(container).capabilities
    return frozenset(capabilities.add) if capabilities else frozenset()


def check_host_namespaces(_: Annotations, spec: PodSpec) -> Violation | None:
    shared = (("hostNetwork", spec.host_network), ("hostPID", spec.host_pid), ("hostIPC", spec.host_ipc))
    found = [f"{name}=true" for name, is_shared in shared if is_shared]
    return Violation("host namespaces", ", ".join(found)) if found else None


def check_host_path_volumes(_: Annotations, spec: PodSpec) -> Violation | None:
    names = [each.name for each in spec.volumes if each.host_path is not None]
    return Violation("hostPath volumes", f"{plural('volume', names)} {quoted(names)}") if names else None


def check_host_ports(_: Annotations, spec: PodSpec) -> Violation | None:
    ports = {each.name: [str(port.host_port) for port in each.ports if port.host_port] for each in containers_of(spec)}
    bad = [name for name, found in ports.items() if found]
    if not bad:
        return None
    listed = sorted({port for found in ports.values() for port in found})
    uses = "uses" if len(bad) == 1 else "use"
    return Violation("hostPort", f"{name_containers(bad)} {uses} {plural('hostPort', listed)} {', '.join(listed)}")


def check_probe_hosts(_: Annotations, spec: PodSpec) -> Violation | None:
    hosts = {each.name: _hosts_of(each) for each in containers_of(spec)}
    bad = sorted(name for name, found in hosts.items() if found)
    if not bad:
        return None
    listed = sorted(set().union(*hosts.values()))
    uses, what = "uses" if len(bad) == 1 else "use", plural("probe or lifecycle host", listed)
    return Violation("probe or lifecycle host", f"{name_containers(bad)} {uses} {what} {quoted(listed)}")


def _hosts_of(container: AnyContainer) -> set[str]:
    hooks = container.lifecycle
    probes = (container.liveness_probe, container.readiness_probe, container.startup_probe)
    actions: tuple[Probe | LifecycleHandler | None, ...] = (
        (*probes, hooks.post_start, hooks.pre_stop) if hooks else probes
    )
    asked = (part for each in actions if each for part in (each.http_get, each.tcp_socket) if part)
    return {each.host for each in asked if each.host}


def check_privileged(_: Annotations, spec: PodSpec) -> Violation | None:
    bad = names_where(spec, lambda each: context_of(each).privileged is True)
    detail = f"{name_containers(bad)} must not set securityContext.privileged=true"
    return Violation("privileged", detail) if bad else None


def check_proc_mount(_: Annotations, spec: PodSpec) -> Violation | None:
    mounts = {each.name: context_of(each).proc_mount for each in containers_of(spec)}
    bad = {name: mount for name, mount in mounts.items() if mount not in ("", "Default")}
    if not bad:
        return None
    detail = (
        f"{name_containers(list(bad))} must not set securityContext.procMount to {quoted(sorted(set(bad.values())))}"
    )
    return Violation("procMount", detail)


def check_proc_mount_unless_user_namespace(annotations: Annotations, spec: PodSpec) -> Violation | None:
    return None if has_user_namespace(spec) else check_proc_mount(annotations, spec)


def _check_se_linux(*more_types: str) -> Check:
    types = frozenset({"", "container_t", "container_init_t", "container_kvm_t", *more_types})

    def is_bad(options: SELinuxOptions | None) -> bool:
        return options is not None and bool(options.type not in types or options.user or options.role)

    def check(_: Annotations, spec: PodSpec) -> Violation | None:
        of_pod = pod_context_of(spec).se_linux_options
        names = names_where(spec, lambda each: is_bad(context_of(each).se_linux_options))
        who = name_setters(pod=is_bad(of_pod), names=names)
        if not who:
            return None
        given = [
            each for each in (of_pod, *(context_of(each).se_linux_options for each in containers_of(spec))) if each
        ]
        bad_types = sorted({each.type for each in given if each.type not in types})
        faults = (
            *((f"{plural('type', bad_types)} {quoted(bad_types)}",) if bad_types else ()),
            *(("user may not be set",) if any(each.user for each in given) else ()),
            *(("role may not be set",) if any(each.role for each in given) else ()),
        )
        detail = f"{who} set forbidden securityContext.seLinuxOptions: {'; '.join(faults)}"
        return Violation("seLinuxOptions", detail)

    return check


def check_seccomp_annotations(annotations: Annotations, spec: PodSpec) -> Violation | None:
    keys = (_SECCOMP_POD_ANNOTATION, *(f"{_SECCOMP_ANNOTATION}{each.name}" for each in containers_of(spec)))
    noted = sorted(
        f'{key}="{value}"'
        for key in set(keys)
        if (value := annotations.get(key)) is not None
        and value not in ("runtime/default", "docker/default")
        and not value.startswith("localhost/")
    )
    return Violation("seccompProfile", f"forbidden {plural('annotation', noted)} {', '.join(noted)}") if noted else None


def check_seccomp(_: Annotations, spec: PodSpec) -> Violation | None:
    of_pod = pod_context_of(spec).seccomp_profile
    profiles = {each.name: context_of(each).seccomp_profile for each in containers_of(spec)}
    bad = {name: profile.type for name, profile in profiles.items() if profile and profile.type not in _CONFINED}
    values = {*bad.values(), *((of_pod.type,) if of_pod and of_pod.type not in _CONFINED else ())}
    who = name_setters(pod=of_pod is not None and of_pod.type not in _CONFINED, names=list(bad))
    detail = f"{who} must not set securityContext.seccompProfile.type to {quoted(sorted(values))}"
    return Violation("seccompProfile", detail) if who else None


def _check_sysctls(allowed: frozenset[str]) -> Check:
    def check(_: Annotations, spec: PodSpec) -> Violation | None:
        bad = [each.name for each in pod_context_of(spec).sysctls if each.name not in allowed]
        return Violation("forbidden sysctls", ", ".join(bad)) if bad else None

    return check


_SYSCTLS_1_0 = frozenset(
    {"kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.tcp_syncookies"}
    | {"net.ipv4.ping_group_range", "net.ipv4.ip_unprivileged_port_start"}
)
_SYSCTLS_1_27 = _SYSCTLS_1_0 | {"net.ipv4.ip_local_reserved_ports"}
_SYSCTLS_1_29 = _SYSCTLS_1_27 | {
    f"net.ipv4.tcp_{each}" for each in ("keepalive_time", "fin_timeout", "keepalive_intvl", "keepalive_probes")
}
_SYSCTLS_1_32 = _SYSCTLS_1_29 | {"net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"}
_SYSCTLS_1_37 = _SYSCTLS_1_32 | {"net.ipv4.tcp_slow_start_after_idle", "net.ipv4.tcp_notsent_lowat"}


def check_windows_host_process(_: Annotations, spec: PodSpec) -> Violation | None:
    of_pod = pod_context_of(spec).windows_options
    names = names_where(
        spec, lambda each: (options := context_of(each).windows_options) is not None and options.host_process is True
    )
    who = name_setters(pod=of_pod is not None and of_pod.host_process is True, names=names)
    detail = f"{who} must not set securityContext.windowsOptions.hostProcess=true"
    return Violation("hostProcess", detail) if who else None


CONTROLS = (
    Control("appArmorProfile", ((0, check_app_armor),)),
    Control("capabilities_baseline", ((0, check_capabilities),)),
    Control("hostNamespaces", ((0, check_host_namespaces),)),
    Control("hostPathVolumes", ((0, check_host_path_volumes),)),
    Control("hostPorts", ((0, check_host_ports),)),
    Control("hostProbesAndHostLifecycle", ((34, check_probe_hosts),)),
    Control("privileged", ((0, check_privileged),)),
    Control("procMount", ((0, check_proc_mount), (35, check_proc_mount_unless_user_namespace))),
    Control("seLinuxOptions", ((0, _check_se_linux()), (31, _check_se_linux("container_engine_t")))),
    Control("seccompProfile_baseline", ((0, check_seccomp_annotations), (19, check_seccomp))),
    Control(
        "sysctls",
        (
            (0, _check_sysctls(_SYSCTLS_1_0)),
            (27, _check_sysctls(_SYSCTLS_1_27)),
            (29, _check_sysctls(_SYSCTLS_1_29)),
            (32, _check_sysctls(_SYSCTLS_1_32)),
            (37, _check_sysctls(_SYSCTLS_1_37)),
        ),
    ),
    Control("windowsHostProcess", ((0, check_windows_host_process),)),
)

"""Pod Security: each control of the published table, with allowed and forbidden values in every sort of container; labels of
namespaces; and what is refused, warned of and audited."""

from typing import Any

import msgspec
import pytest

from app.kinds.batch.cronjob import CronJob
from app.kinds.batch.job import Job
from app.kinds.core.namespace import Namespace
from app.kinds.pod.pod import KIND as PODS
from app.kinds.pod.pod import Pod
from app.kinds.pod.pod_schema import PodTemplate
from app.machinery.errors import ApiError
from app.plans.admission.pod_security import review
from app.plans.admission.pod_security.evaluation import violations
from app.plans.admission.pod_security.namespace_policy import (
    ALL_PRIVILEGED,
    LevelVersion,
    NamespacePolicy,
    PodSecurityConfiguration,
    default_policy,
    read_labels,
)

HARDENED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}
SORTS = ("containers", "initContainers", "ephemeralContainers")


def a_pod(spec: dict[str, Any] | None = None, annotations: dict[str, str] | None = None, name: str = "p") -> Pod:
    """As it is stored. Every container is hardened, so that a control is looked at by itself."""
    body: dict[str, Any] = {"restartPolicy": "Never", "containers": [a_container("c")]} | (spec or {})
    made: Pod = PODS.prepare(
        msgspec.convert({"metadata": {"name": name, "annotations": annotations or {}}, "spec": body}, Pod)
    )
    return made


def a_container(name: str, **parts: Any) -> dict[str, Any]:
    context = HARDENED | parts.pop("securityContext", {})
    return {"name": name, "image": "busybox", "securityContext": context} | parts


def faults(pod: Pod, level: str, version: str = "latest") -> str:
    return ", ".join(map(str, violations(LevelVersion(level, version), pod.metadata.annotations, pod.spec)))


def of_pod(**context: Any) -> dict[str, Any]:
    return {"securityContext": context}


# --- controls that look at containers: every sort of them


@pytest.mark.parametrize("sort", SORTS)
@pytest.mark.parametrize(
    ("level", "allowed", "forbidden", "fault"),
    [
        pytest.param(
            "baseline",
            [{"privileged": False}, {}],
            {"privileged": True, "allowPrivilegeEscalation": True},
            'privileged (container "bad" must not set securityContext.privileged=true)',
            id="privileged",
        ),
        pytest.param(
            "baseline",
            [{"capabilities": {"add": ["CHOWN", "NET_BIND_SERVICE"], "drop": ["ALL"]}}],
            {"capabilities": {"add": ["SYS_ADMIN", "NET_RAW", "CHOWN"]}},
            'non-default capabilities (container "bad" must not include "NET_RAW", "SYS_ADMIN" in '
            "securityContext.capabilities.add)",
            id="capabilities of baseline",
        ),
        pytest.param(
            "baseline",
            [{"procMount": "Default"}],
            {"procMount": "Unmasked"},
            'procMount (container "bad" must not set securityContext.procMount to "Unmasked")',
            id="/proc",
        ),
        pytest.param(
            "baseline",
            [{"appArmorProfile": {"type": each}} for each in ("RuntimeDefault", "Localhost")],
            {"appArmorProfile": {"type": "Unconfined"}},
            'forbidden AppArmor profile (container "bad" must not set AppArmor profile type to "Unconfined")',
            id="AppArmor",
        ),
        pytest.param(
            "baseline",
            [{"seLinuxOptions": {"type": each}} for each in ("container_t", "container_engine_t", "")],
            {"seLinuxOptions": {"type": "spc_t", "user": "u", "role": "r"}},
            'seLinuxOptions (container "bad" set forbidden securityContext.seLinuxOptions: type "spc_t"; '
            "user may not be set; role may not be set)",
            id="SELinux",
        ),
        pytest.param(
            "baseline",
            [{"seccompProfile": {"type": "Localhost", "localhostProfile": "x"}}, {"seccompProfile": None}],
            {"seccompProfile": {"type": "Unconfined"}},
            'seccompProfile (container "bad" must not set securityContext.seccompProfile.type to "Unconfined")',
            id="seccomp of baseline",
        ),
        pytest.param(
            "baseline",
            [{"windowsOptions": {"hostProcess": False}}],
            {"windowsOptions": {"hostProcess": True}},
            'hostProcess (container "bad" must not set securityContext.windowsOptions.hostProcess=true)',
            id="processes of a Windows host",
        ),
        pytest.param(
            "restricted",
            [{"allowPrivilegeEscalation": False}],
            {"allowPrivilegeEscalation": None},
            'allowPrivilegeEscalation != false (container "bad" must set securityContext.allowPrivilegeEscalation=false)',
            id="privilege escalation",
        ),
        pytest.param(
            "restricted",
            [{"capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}}],
            {"capabilities": {"drop": ["CHOWN"], "add": ["KILL"]}},
            'unrestricted capabilities (container "bad" must set securityContext.capabilities.drop=["ALL"]; '
            'container "bad" must not include "KILL" in securityContext.capabilities.add)',
            id="capabilities of restricted",
        ),
        pytest.param(
            "restricted",
            [{"runAsNonRoot": True}],
            {"runAsNonRoot": None},
            'runAsNonRoot != true (pod or container "bad" must set securityContext.runAsNonRoot=true)',
            id="no word of the user",
        ),
        pytest.param(
            "restricted",
            [{"runAsNonRoot": True}],
            {"runAsNonRoot": False},
            'runAsNonRoot != true (container "bad" must not set securityContext.runAsNonRoot=false)',
            id="root allowed",
        ),
        pytest.param(
            "restricted",
            [{"runAsUser": 1000}],
            {"runAsUser": 0},
            'runAsUser=0 (container "bad" must not set runAsUser=0)',
            id="user 0",
        ),
        pytest.param(
            "restricted",
            [{"seccompProfile": {"type": "Localhost", "localhostProfile": "x"}}],
            {"seccompProfile": None},
            'seccompProfile (pod or container "bad" must set securityContext.seccompProfile.type to '
            '"RuntimeDefault" or "Localhost")',
            id="seccomp of restricted",
        ),
    ],
)
def test_a_security_context(sort: str, level: str, allowed: list, forbidden: dict, fault: str) -> None:
    main = [] if sort == "containers" else [a_container("main")]

    def with_one(context: dict[str, Any]) -> Pod:
        sorts = {"containers": main} | {sort: [a_container("good"), a_container("bad", securityContext=context)]}
        return a_pod(sorts)

    for each in allowed:
        assert faults(with_one(each), level) == ""
    assert faults(with_one(forbidden), level) == fault
    assert faults(with_one(forbidden), "privileged") == ""


@pytest.mark.parametrize("sort", ["containers", "initContainers"])
@pytest.mark.parametrize(
    ("parts", "fault"),
    [
        pytest.param(
            {"ports": [{"containerPort": 80, "hostPort": 8080}, {"containerPort": 81, "hostPort": 443}]},
            'hostPort (container "bad" uses hostPorts 443, 8080)',
            id="ports of the host",
        ),
        pytest.param(
            {"livenessProbe": {"httpGet": {"port": 80, "host": "10.0.0.1"}}},
            'probe or lifecycle host (container "bad" uses probe or lifecycle host "10.0.0.1")',
            id="a probe of another host",
        ),
        pytest.param(
            {
                "lifecycle": {
                    "preStop": {"tcpSocket": {"port": 80, "host": "b"}},
                    "postStart": {"httpGet": {"port": 1, "host": "a"}},
                }
            },
            'probe or lifecycle host (container "bad" uses probe or lifecycle hosts "a", "b")',
            id="hooks to other hosts",
        ),
    ],
)
def test_ports_and_probes(sort: str, parts: dict, fault: str) -> None:
    main = [] if sort == "containers" else [a_container("main")]
    harmless = a_container("good", ports=[{"containerPort": 80}], livenessProbe={"httpGet": {"port": 80}})

    assert faults(a_pod({"containers": main} | {sort: [harmless, a_container("bad", **parts)]}), "baseline") == fault


# --- controls that look at the pod


@pytest.mark.parametrize(
    ("level", "allowed", "forbidden", "fault"),
    [
        pytest.param(
            "baseline",
            {"hostNetwork": False, "hostPID": False},
            {"hostNetwork": True, "hostPID": True, "hostIPC": True},
            "host namespaces (hostNetwork=true, hostPID=true, hostIPC=true)",
            id="namespaces of the host",
        ),
        pytest.param(
            "baseline",
            {"volumes": [{"name": "v", "emptyDir": {}}, {"name": "n", "nfs": {"server": "s", "path": "/"}}]},
            {"volumes": [{"name": "v", "hostPath": {"path": "/"}}, {"name": "w", "hostPath": {"path": "/"}}]},
            'hostPath volumes (volumes "v", "w")',
            id="folders of the host",
        ),
        pytest.param(
            "restricted",
            {
                "volumes": [
                    {"name": each, source: {}}
                    for each, source in (("a", "configMap"), ("b", "emptyDir"), ("c", "secret"), ("d", "projected"))
                ]
            },
            {"volumes": [{"name": "v", "hostPath": {"path": "/"}}, {"name": "w", "nfs": {"server": "s", "path": "/"}}]},
            'restricted volume types (volumes "v", "w" use restricted volume types "hostPath", "nfs")',
            id="sorts of volumes",
        ),
        pytest.param(
            "baseline",
            of_pod(sysctls=[{"name": "net.ipv4.tcp_syncookies", "value": "1"}]),
            of_pod(sysctls=[{"name": "kernel.msgmax", "value": "1"}]),
            "forbidden sysctls (kernel.msgmax)",
            id="sysctls",
        ),
        pytest.param(
            "baseline",
            of_pod(seLinuxOptions={"type": "container_t", "level": "s0"}),
            of_pod(seLinuxOptions={"user": "u"}),
            "seLinuxOptions (pod set forbidden securityContext.seLinuxOptions: user may not be set)",
            id="SELinux",
        ),
        pytest.param(
            "baseline",
            of_pod(appArmorProfile={"type": "RuntimeDefault"}),
            of_pod(appArmorProfile={"type": "Unconfined"}),
            'forbidden AppArmor profile (pod must not set AppArmor profile type to "Unconfined")',
            id="AppArmor",
        ),
        pytest.param(
            "baseline",
            of_pod(seccompProfile={"type": "RuntimeDefault"}),
            of_pod(seccompProfile={"type": "Unconfined"}),
            'seccompProfile (pod must not set securityContext.seccompProfile.type to "Unconfined")',
            id="seccomp",
        ),
        pytest.param(
            "baseline",
            of_pod(windowsOptions={}),
            of_pod(windowsOptions={"hostProcess": True}),
            "hostProcess (pod must not set securityContext.windowsOptions.hostProcess=true)",
            id="processes of a Windows host",
        ),
        pytest.param(
            "restricted",
            of_pod(runAsUser=1, runAsNonRoot=True),
            of_pod(runAsUser=0, runAsNonRoot=False),
            "runAsNonRoot != true (pod must not set securityContext.runAsNonRoot=false), "
            "runAsUser=0 (pod must not set runAsUser=0)",
            id="the user",
        ),
    ],
)
def test_the_pod_itself(level: str, allowed: dict, forbidden: dict, fault: str) -> None:
    assert faults(a_pod(allowed), level) == ""
    assert faults(a_pod(forbidden), level) == fault


def test_containers_without_a_context_of_their_own_have_the_pods() -> None:
    context = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    own = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    container = {"name": "c", "image": "busybox", "securityContext": own}

    assert faults(a_pod({"containers": [container], "securityContext": context}), "restricted") == ""


def test_annotations_of_old_releases() -> None:
    bad = {
        "container.apparmor.security.beta.kubernetes.io/c": "unconfined",
        "seccomp.security.alpha.kubernetes.io/pod": "unconfined",
    }
    app_armor = (
        "forbidden AppArmor profile (annotation must not set AppArmor profile type to "
        '"container.apparmor.security.beta.kubernetes.io/c="unconfined"")'
    )
    seccomp = 'seccompProfile (forbidden annotation seccomp.security.alpha.kubernetes.io/pod="unconfined")'

    assert faults(a_pod(annotations=bad), "baseline") == app_armor
    assert faults(a_pod(annotations=bad), "baseline", "v1.18") == f"{app_armor}, {seccomp}"
    assert faults(a_pod(annotations=dict.fromkeys(bad, "localhost/x")), "baseline", "v1.18") == ""


def test_the_words_of_a_pod_that_says_nothing() -> None:
    """As kubectl shows them for `kubectl run` in a restricted namespace of Kubernetes."""
    bare = a_pod({"containers": [{"name": "c", "image": "busybox"}]})

    assert faults(bare, "baseline") == ""
    assert faults(bare, "restricted") == (
        'allowPrivilegeEscalation != false (container "c" must set securityContext.allowPrivilegeEscalation=false), '
        'unrestricted capabilities (container "c" must set securityContext.capabilities.drop=["ALL"]), '
        'runAsNonRoot != true (pod or container "c" must set securityContext.runAsNonRoot=true), '
        'seccompProfile (pod or container "c" must set securityContext.seccompProfile.type to '
        '"RuntimeDefault" or "Localhost")'
    )


# --- versions


@pytest.mark.parametrize(
    ("spec", "level", "before", "since"),
    [
        pytest.param(of_pod(runAsUser=0), "restricted", "v1.22", "v1.23", id="user 0"),
        pytest.param(
            {"containers": [a_container("c", livenessProbe={"tcpSocket": {"port": 1, "host": "x"}})]},
            "baseline",
            "v1.33",
            "v1.34",
            id="hosts of probes",
        ),
        pytest.param(
            {"containers": [a_container("c", securityContext={"allowPrivilegeEscalation": None})]},
            "restricted",
            "v1.7",
            "v1.8",
            id="privilege escalation",
        ),
    ],
)
def test_controls_that_came_later(spec: dict, level: str, before: str, since: str) -> None:
    assert faults(a_pod(spec), level, before) == ""
    for version in (since, "v1.37", "v1.999", "latest"):
        assert faults(a_pod(spec), level, version) != ""


@pytest.mark.parametrize(
    ("spec", "level", "before", "since"),
    [
        pytest.param(
            of_pod(sysctls=[{"name": "net.ipv4.tcp_rmem", "value": "1"}]), "baseline", "v1.31", "v1.32", id="sysctls"
        ),
        pytest.param(
            {
                "os": {"name": "windows"},
                "containers": [{"name": "c", "image": "i", "securityContext": {"runAsNonRoot": True}}],
            },
            "restricted",
            "v1.24",
            "v1.25",
            id="Windows",
        ),
        pytest.param({"hostUsers": False} | of_pod(runAsUser=0), "restricted", "v1.34", "v1.35", id="user namespaces"),
        pytest.param(
            {"hostUsers": False, "containers": [a_container("c", securityContext={"procMount": "Unmasked"})]},
            "baseline",
            "v1.34",
            "v1.35",
            id="/proc in user namespaces",
        ),
    ],
)
def test_what_is_allowed_later(spec: dict, level: str, before: str, since: str) -> None:
    assert faults(a_pod(spec), level, before) != ""
    assert faults(a_pod(spec), level, since) == ""


def test_an_unmasked_proc_is_never_restricted() -> None:
    spec = {"hostUsers": False, "containers": [a_container("c", securityContext={"procMount": "Unmasked"})]}

    assert faults(a_pod(spec), "restricted").startswith("procMount (")


# --- labels of namespaces


def labels(**some: str) -> dict[str, str]:
    return {f"pod-security.kubernetes.io/{name.replace('_', '-')}": value for name, value in some.items()}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param({}, "privileged:latest privileged:latest privileged:latest", id="none"),
        pytest.param(
            labels(enforce="baseline"),
            "baseline:latest privileged:latest baseline:latest",
            id="what is enforced is warned of",
        ),
        pytest.param(
            labels(enforce="baseline", enforce_version="v1.30"),
            "baseline:v1.30 privileged:latest baseline:v1.30",
            id="in its version",
        ),
        pytest.param(
            labels(enforce="restricted", warn="baseline", audit="restricted", audit_version="v1.2"),
            "restricted:latest restricted:v1.2 baseline:latest",
            id="each its own",
        ),
        pytest.param(
            labels(enforce="strict", warn="x", audit="y", warn_version="1.2"),
            "restricted:latest privileged:latest privileged:latest",
            id="what cannot be read is enforced as restricted",
        ),
    ],
)
def test_labels(given: dict[str, str], expected: str) -> None:
    assert " ".join(map(str, read_labels(given).policy)) == expected


def test_a_namespace_without_labels_has_the_default_and_an_exempt_one_none() -> None:
    configuration = PodSecurityConfiguration(default_policy("baseline"), frozenset({"kube-system"}))

    assert configuration.policy_of("a", {}).enforce == ("baseline", "latest")
    assert configuration.policy_of("a", labels(enforce="privileged")).enforce.level == "privileged"
    assert configuration.policy_of("kube-system", labels(enforce="restricted")) == ALL_PRIVILEGED


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (labels(enforce="strict"), 'Invalid value: "strict": must be one of privileged, baseline, restricted'),
        (labels(warn=""), 'Invalid value: "": must be one of privileged, baseline, restricted'),
        (labels(audit_version="1.30"), 'Invalid value: "1.30": must be "latest" or "v1.x"'),
        (labels(enforce_version="v1.01"), 'Invalid value: "v1.01": must be "latest" or "v1.x"'),
        (labels(enforce_version="v1.2\n"), 'Invalid value: "v1.2\\n": must be "latest" or "v1.x"'),
    ],
)
def test_labels_that_cannot_be_read(given: dict[str, str], message: str) -> None:
    (cause,) = read_labels(given).causes

    assert (cause.field, cause.message) == (f"metadata.labels[{next(iter(given))}]", message)


def a_namespace(name: str = "n", **some: str) -> Namespace:
    return msgspec.convert({"metadata": {"name": name, "labels": labels(**some)}}, Namespace)


def test_labels_that_were_bad_before_are_let_be() -> None:
    bad = a_namespace(enforce="strict")

    assert review.label_causes(bad, a_namespace())
    assert not review.label_causes(bad, bad)
    assert review.label_causes(a_namespace(enforce="lax"), bad)


@pytest.mark.parametrize(
    ("before", "after", "looks"),
    [
        ({}, {"enforce": "baseline"}, True),
        ({"enforce": "baseline"}, {"enforce": "restricted"}, True),
        ({"enforce": "baseline"}, {"enforce": "baseline", "enforce_version": "v1.1"}, True),
        ({"enforce": "restricted"}, {"enforce": "baseline"}, False),
        ({"enforce": "restricted"}, {}, False),
        ({}, {"warn": "restricted", "audit": "restricted"}, False),
        ({"enforce": "baseline"}, {"enforce": "baseline"}, False),
    ],
)
def test_only_a_stricter_level_looks_at_the_pods(before: dict, after: dict, looks: bool) -> None:
    found = review.changed_enforcement(a_namespace(**after), a_namespace(**before), PodSecurityConfiguration())

    assert (found is not None) == looks


def test_pods_with_the_same_faults_are_named_together() -> None:
    bare = {"containers": [{"name": "c", "image": "i"}]}
    pods = [a_pod(bare, name=name) for name in ("c", "b", "a")] + [
        a_pod(name="good"),
        a_pod({"hostPID": True}, name="h"),
    ]

    assert review.warn_of_pods("n", LevelVersion("restricted", "latest"), pods, 9) == (
        "new PodSecurity enforce level only checked against the first 5 of 9 existing pods",
        'existing pods in namespace "n" violate the new PodSecurity enforce level "restricted:latest"',
        "a (and 2 other pods): allowPrivilegeEscalation != false, unrestricted capabilities, runAsNonRoot != true, "
        "seccompProfile",
        "h: host namespaces",
    )


def test_an_exempt_namespace_says_that_its_labels_are_ignored() -> None:
    assert review.exemption_warning(a_namespace("kube-system", enforce="baseline"), PodSecurityConfiguration()) == (
        'namespace "kube-system" is exempt from Pod Security, and the policy (enforce=baseline:latest) will be ignored'
    )
    assert review.exemption_warning(a_namespace("other", enforce="baseline"), PodSecurityConfiguration()) == ""


# --- what follows for an object

BAD = {"hostPID": True, "restartPolicy": "Never", "containers": [a_container("c")]}
FAULT = "host namespaces (hostPID=true)"


def a_policy(**some: str) -> NamespacePolicy:
    return read_labels(labels(**some)).policy


def test_a_pod_is_refused_with_what_an_audit_log_notes() -> None:
    with pytest.raises(ApiError) as refused:
        review.review("pods", a_pod(BAD, name="p"), a_policy(enforce="baseline", audit="restricted"))

    error = refused.value
    assert (error.code, error.reason) == (403, "Forbidden")
    assert error.message == f'pods "p" is forbidden: violates PodSecurity "baseline:latest": {FAULT}'
    assert error.audit_annotations == {
        "pod-security.kubernetes.io/enforce-policy": "baseline:latest",
        "pod-security.kubernetes.io/audit-violations": f'would violate PodSecurity "restricted:latest": {FAULT}',
    }


def test_a_pod_is_warned_of_and_audited() -> None:
    said = review.review("pods", a_pod(BAD), a_policy(warn="baseline", audit="baseline", audit_version="v1.30"))

    assert said.warnings == (f'would violate PodSecurity "baseline:latest": {FAULT}',)
    assert said.audit_annotations == {
        "pod-security.kubernetes.io/enforce-policy": "privileged:latest",
        "pod-security.kubernetes.io/audit-violations": f'would violate PodSecurity "baseline:v1.30": {FAULT}',
    }


@pytest.mark.parametrize(
    ("type_", "body"),
    [
        pytest.param(Job, {"spec": {"template": {"spec": BAD}}}, id="Job"),
        pytest.param(
            CronJob,
            {"spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": {"spec": BAD}}}}},
            id="CronJob",
        ),
        pytest.param(PodTemplate, {"template": {"spec": BAD}}, id="PodTemplate"),
    ],
)
def test_what_makes_pods_is_only_warned_of(type_: Any, body: dict) -> None:
    said = review.review("x", msgspec.convert(body, type_), a_policy(enforce="baseline"))

    assert said == ((f'would violate PodSecurity "baseline:latest": {FAULT}',), {})


def test_nothing_is_said_of_what_has_no_pods_or_violates_nothing() -> None:
    strict = a_policy(enforce="restricted", audit="restricted")

    assert review.review("namespaces", a_namespace(), strict) == ((), {})
    assert review.review("pods", a_pod(), strict).warnings == ()


@pytest.mark.parametrize(
    ("new", "significant"),
    [
        ({"containers": [a_container("c")]}, False),
        ({"containers": [a_container("c", image="other")]}, True),
        ({"containers": [a_container("c")], "ephemeralContainers": [a_container("debug")]}, True),
        ({"containers": [a_container("c")], "tolerations": [{"operator": "Exists"}]}, False),
    ],
)
def test_of_a_pod_that_is_there_only_images_count(new: dict, significant: bool) -> None:
    assert review.is_significant_update(a_pod(new), a_pod()) == significant

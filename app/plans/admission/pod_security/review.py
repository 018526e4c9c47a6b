"""Review by Pod Security: pods are refused by the namespace's `enforce`, and warned of and audited by the other two modes.

What makes pods (Job, CronJob, Deployment, ReplicaSet, PodTemplate) is never refused, only warned of and audited: its pods are
refused when they are created. Rules and words are those of k8s.io/pod-security-admission. Pure. `pod_admission` calls it for
new objects, the registry's strategies for changed ones.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest

from app.kinds.apps.apps_schema import Deployment, ReplicaSet
from app.kinds.batch.cronjob import CronJob
from app.kinds.batch.job import Job
from app.kinds.core.namespace import Namespace
from app.kinds.pod.pod_schema import Pod, PodSpec, PodTemplate
from app.machinery.base import Object
from app.machinery.errors import Cause, forbidden_error
from app.machinery.meta.owner_references import controller_uid
from app.plans.admission.pod_security.control import AnyContainer
from app.plans.admission.pod_security.evaluation import violations
from app.plans.admission.pod_security.namespace_policy import (
    ALL_PRIVILEGED,
    EXEMPT,
    MODES,
    PREFIX,
    PRIVILEGED,
    LevelVersion,
    NamespacePolicy,
    PodSecurityConfiguration,
    is_stricter,
    read_labels,
)
from app.plans.admission.review import NOTHING, Review

MOST_PODS = 3000  # of a namespace that are looked at when its labels change, as in Kubernetes
MOST_CHARACTERS = 2048  # of one warning, as it travels in a header
_EXEMPT = Review(audit_annotations={f"{PREFIX}exempt": "namespace"})


def review(resource: str, obj: Object, policy: NamespacePolicy) -> Review:
    """Return warnings and annotations for a new or changed object of a namespace. Raises the 403 for a pod."""
    if policy is EXEMPT and _pod_of(obj) is not None:
        return _EXEMPT
    found = None if policy.is_privileged else _pod_of(obj)
    if found is None:
        return NOTHING
    (annotations, spec), enforced = found, isinstance(obj, Pod)
    texts: dict[LevelVersion, str] = {}
    for at in {policy.audit, policy.warn, *((policy.enforce,) if enforced else ())}:
        texts[at] = ", ".join(map(str, violations(at, annotations, spec)))
    notes = {f"{PREFIX}enforce-policy": str(policy.enforce)} if enforced else {}
    if text := texts[policy.audit]:
        notes[f"{PREFIX}audit-violations"] = f'would violate PodSecurity "{policy.audit}": {text}'
    if enforced and (text := texts[policy.enforce]):
        why = f'violates PodSecurity "{policy.enforce}": {text}'
        error = forbidden_error(resource, obj.metadata.name, why)
        error.audit_annotations = notes
        raise error
    text = texts[policy.warn]
    return Review((f'would violate PodSecurity "{policy.warn}": {text}'[:MOST_CHARACTERS],) if text else (), notes)


def _pod_of(obj: Object) -> tuple[Mapping[str, str], PodSpec] | None:
    """Return annotations and spec of a pod, or of the pods that an object makes."""
    if isinstance(obj, Pod):
        return obj.metadata.annotations, obj.spec
    if isinstance(obj, Job):
        template = obj.spec.template
    elif isinstance(obj, CronJob):
        template = obj.spec.job_template.spec.template
    elif isinstance(obj, Deployment | ReplicaSet):
        template = obj.spec.template
    elif isinstance(obj, PodTemplate):
        template = obj.template
    else:
        return None
    return template.metadata.annotations, template.spec


def is_significant_update(new: Pod, old: Pod) -> bool:
    """Return whether a change of a pod is reviewed: what else can change of it is no matter of security."""
    pairs = (
        (new.spec.containers, old.spec.containers),
        (new.spec.init_containers, old.spec.init_containers),
        (new.spec.ephemeral_containers, old.spec.ephemeral_containers),
    )
    return any(_image_of(one) != _image_of(other) for pair in pairs for one, other in zip_longest(*pair))


def _image_of(container: AnyContainer | None) -> str | None:
    return None if container is None else container.image


# --- namespaces


def label_causes(new: Namespace, old: Namespace | None = None) -> list[Cause]:
    """Return what is wrong with the labels of a namespace, unless just that was wrong with them before."""
    causes = read_labels(new.metadata.labels).causes
    return [] if old is not None and causes == read_labels(old.metadata.labels).causes else causes


def changed_enforcement(new: Namespace, old: Namespace, configuration: PodSecurityConfiguration) -> LevelVersion | None:
    """Return the level by which the pods that are there should be looked at, as new ones of their sort may be refused."""
    after, before = (read_labels(each.metadata.labels, configuration.default).policy.enforce for each in (new, old))
    relaxed = after.version == before.version and not is_stricter(after.level, before.level)
    return None if after == before or after.level == PRIVILEGED or relaxed else after


def exemption_warning(namespace: Namespace, configuration: PodSecurityConfiguration) -> str:
    """Return what to say of labels that are without effect, as the namespace is exempt."""
    name, labels = namespace.metadata.name, namespace.metadata.labels
    policy = read_labels(labels, configuration.default).policy
    if name not in configuration.exempt or policy in (ALL_PRIVILEGED, configuration.default):
        return ""
    said = (
        f"{mode}={at}"
        for mode, at in zip(MODES, policy, strict=True)
        if at.level != PRIVILEGED and (f"{PREFIX}{mode}" in labels or f"{PREFIX}{mode}-version" in labels)
    )
    return f'namespace "{name}" is exempt from Pod Security, and the policy ({", ".join(said)}) will be ignored'


def warn_of_pods(namespace: str, enforce: LevelVersion, pods: Sequence[Pod], total: int) -> tuple[str, ...]:
    """Return what to say of the pods that a new level would refuse, those with the same violations together."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for pod in pods:
        if found_here := violations(enforce, pod.metadata.annotations, pod.spec):
            found[", ".join(each.reason for each in found_here)].append(pod.metadata.name)
    warnings = []
    if len(pods) < total:
        warnings.append(
            f"new PodSecurity enforce level only checked against the first {len(pods)} of {total} existing pods"
        )
    if found:
        warnings.append(
            f'existing pods in namespace "{namespace}" violate the new PodSecurity enforce level "{enforce}"'
        )
    return (*warnings, *sorted(f"{_name_pods(names)}: {reasons}" for reasons, names in found.items()))


def _name_pods(names: list[str]) -> str:
    others = len(names) - 1
    if not others:
        return names[0]
    return f"{min(names)} (and {others} other {'pod' if others == 1 else 'pods'})"


def by_controller(pods: Iterable[Pod]) -> list[Pod]:
    """Return the pods, one of each controller before all others: if not all are looked at, every sort was."""
    first: list[Pod] = []
    rest: list[Pod] = []
    seen: set[str] = set()
    for pod in pods:
        uid = controller_uid(pod)
        (rest if uid in seen else first).append(pod)
        seen |= {uid} if uid else set()
    return first + rest

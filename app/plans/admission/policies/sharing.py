"""Sharing: pods of one Job about which a policy must say the same, so that it is asked once. Pure.

Pods of a Job differ in their names and, if it is Indexed, in their index. Most expressions look at neither.
"""

import re
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from app.kinds.admission.policy_schema import ValidatingAdmissionPolicySpec
from app.kinds.pod.pod_schema import Pod

_INDEX = "batch.kubernetes.io/job-completion-index"
_STRING = r"""(?:'[^'\\]*'|"[^"\\]*")"""
# What is the same for all pods of a Job: its spec but for the host name, its namespace, labels by name, who asks for what.
_SHARED = re.compile(
    rf"\bobject\.spec\.(?!hostname\b)\w+|has\(object(?:\.spec|\.metadata(?:\.labels)?)?\)|\bobject\.metadata\.namespace\b"
    rf"|\bobject\.metadata\.labels\[{_STRING}\]|\bobject\.metadata\.labels\.\w+\b(?!\()"
    rf"|{_STRING}\s+in\s+object\.metadata\.labels\b(?![.\[])"
    r"|\brequest\.(?:namespace|operation|userInfo|kind|resource|dryRun)\b"
)
_OWN = re.compile(r"\b(?:object|request)\b")


def looks_at_one_pod(spec: ValidatingAdmissionPolicySpec) -> bool:
    """Return whether what a policy says may differ between pods of one Job. True if that is not certain."""
    texts = [each.expression for each in spec.match_conditions]
    texts += [each.expression for each in spec.variables]
    texts += [text for each in spec.validations for text in (each.expression, each.message_expression)]
    texts += [each.value_expression for each in spec.audit_annotations]
    return any(_INDEX in text or _OWN.search(_SHARED.sub("", text)) for text in texts)


def distinct_pods(pods: Iterable[Pod]) -> Sequence[Pod]:
    """Return one pod of each sort: those that differ only in name and index are of one."""
    found: list[tuple[Pod, Pod]] = []
    for pod in pods:
        common = _common(pod)
        if not any(common == other for other, _ in found):
            found.append((common, pod))
    return [pod for _, pod in found]


def _common(pod: Pod) -> Pod:
    meta = pod.metadata
    labels = {key: value for key, value in meta.labels.items() if key != _INDEX}
    metadata = replace(meta, name="", generate_name="", uid="", labels=labels, annotations={})
    return replace(pod, metadata=metadata, spec=replace(pod.spec, hostname=""))

"""Evaluation: which controls of a level and version a pod violates. Used by `review`.

The controls of a level are chosen once for each version. Kubernetes' order: those of baseline first, each by its id.
"""

from functools import cache

from app.kinds.pod.pod_schema import PodSpec
from app.plans.admission.pod_security import baseline, restricted
from app.plans.admission.pod_security.control import Annotations, Check, Control, Violation
from app.plans.admission.pod_security.namespace_policy import BASELINE, LATEST, PRIVILEGED, LevelVersion

NEWEST = 37  # minor release of Kubernetes with the newest version of a control


def violations(at: LevelVersion, annotations: Annotations, spec: PodSpec) -> list[Violation]:
    """Return what of a pod is forbidden at a level; empty if nothing is."""
    if at.level == PRIVILEGED:
        return []
    found = (check(annotations, spec) for check in _checks(at.level, _minor(at.version)))
    return [each for each in found if each is not None]


def _minor(version: str) -> int:
    """Return the minor release; one that is not out yet has the newest controls."""
    return NEWEST if version == LATEST else min(int(version.removeprefix("v1.")), NEWEST)


@cache
def _checks(level: str, minor: int) -> tuple[Check, ...]:
    further = {} if level == BASELINE else _in_force(restricted.CONTROLS, minor)
    replaced = {control.replaces for control in restricted.CONTROLS if control.id in further}
    first = {id_: check for id_, check in _in_force(baseline.CONTROLS, minor).items() if id_ not in replaced}
    return (*(first[id_] for id_ in sorted(first)), *(further[id_] for id_ in sorted(further)))


def _in_force(controls: tuple[Control, ...], minor: int) -> dict[str, Check]:
    """Return the check of each control that there is in a release."""
    known = ((control.id, [check for since, check in control.versions if since <= minor]) for control in controls)
    return {id_: checks[-1] for id_, checks in known if checks}

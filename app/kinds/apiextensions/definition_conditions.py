"""Names of a definition: which of them are free, and what its conditions say of that. Pure.

The registry asks it when a definition is created or changed, the controller when others have gone.
"""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from msgspec.structs import replace

from app.kinds.apiextensions.custom_resource_schema import (
    CustomResourceDefinition,
    CustomResourceDefinitionCondition,
    CustomResourceDefinitionNames,
)

ESTABLISHED, NAMES_ACCEPTED, TERMINATING = "Established", "NamesAccepted", "Terminating"
APPROVAL_CONDITION = "KubernetesAPIApprovalPolicyConformant"
APPROVAL = "api-approved.kubernetes.io"
Condition = CustomResourceDefinitionCondition


def is_established(crd: CustomResourceDefinition) -> bool:
    return _status_of(crd, ESTABLISHED) == "True"


def is_protected(group: str) -> bool:
    """Return whether the group is of the Kubernetes community, which approves what is in it."""
    return any(group == each or group.endswith(f".{each}") for each in ("k8s.io", "kubernetes.io"))


def with_names(
    crd: CustomResourceDefinition, others: Iterable[CustomResourceDefinition], now: datetime
) -> CustomResourceDefinition:
    """The definition with the names that it is served under, and the conditions that follow."""
    competing = [each for each in others if _competes(each, crd)]
    accepted, conflict = _accept(crd, competing)
    conditions = [conflict or Condition(type=NAMES_ACCEPTED, status="True", reason="NoConflicts", message=_NO_CONFLICT)]
    if not is_established(crd):
        conditions.append(_NOT_ESTABLISHED if conflict else _IS_ESTABLISHED)
    conditions += _approval(crd)
    stored = crd.status.stored_versions
    missing = tuple(each.name for each in crd.spec.versions if each.storage and each.name not in stored)
    status = replace(crd.status, accepted_names=accepted, stored_versions=(*stored, *missing))
    return with_conditions(replace(crd, status=status), conditions, now)


_NO_CONFLICT = "no conflicts found"
_IS_ESTABLISHED = Condition(
    type=ESTABLISHED,
    status="True",
    reason="InitialNamesAccepted",
    message="the initial names have been accepted",
)
_NOT_ESTABLISHED = Condition(
    type=ESTABLISHED, status="False", reason="NotAccepted", message="not all names are accepted"
)


def with_conditions(
    crd: CustomResourceDefinition, conditions: Iterable[Condition], now: datetime
) -> CustomResourceDefinition:
    """The definition with conditions; each keeps its place, and its time if its status is the same."""
    found = {each.type: each for each in crd.status.conditions}
    for new in conditions:
        old = found.get(new.type)
        since = old.last_transition_time if old is not None and old.status == new.status else now
        found[new.type] = replace(new, last_transition_time=since)
    return replace(crd, status=replace(crd.status, conditions=tuple(found.values())))


def _competes(other: CustomResourceDefinition, crd: CustomResourceDefinition) -> bool:
    return other.spec.group == crd.spec.group and other.metadata.name != crd.metadata.name


def _accept(
    crd: CustomResourceDefinition, others: list[CustomResourceDefinition]
) -> tuple[CustomResourceDefinitionNames, Condition | None]:
    """The names that are free, in place of those that were accepted before, and the last conflict.

    Of two definitions that were accepted at the same moment, through two processes, the older one keeps its names.
    """
    wanted, accepted = crd.spec.names, crd.status.accepted_names
    everyone, older = _Taken(others), _Taken([each for each in others if _age(each) < _age(crd)])
    conflict = None
    for reason, field, names in _candidates(wanted):
        taken = older if getattr(accepted, field) == getattr(wanted, field) else everyone
        if clash := next((each for each in names if each in taken.by_field(field)), ""):
            conflict = Condition(
                type=NAMES_ACCEPTED, status="False", reason=reason, message=f'"{clash}" is already in use'
            )
        else:
            accepted = replace(accepted, **{field: getattr(wanted, field)})
    return replace(accepted, categories=wanted.categories), conflict


class _Taken:
    """Names that definitions have."""

    def __init__(self, definitions: list[CustomResourceDefinition]) -> None:
        names = [each.status.accepted_names for each in definitions]
        self._resources = {name for each in names for name in (each.plural, each.singular, *each.short_names)}
        self._kinds = {name for each in names for name in (each.kind, each.list_kind)}

    def by_field(self, field: str) -> set[str]:
        """The names that one may not be among: kinds and resources are named apart."""
        return self._kinds if field in ("kind", "list_kind") else self._resources


def _age(crd: CustomResourceDefinition) -> tuple[datetime, str]:
    """A sort key: the older comes first."""
    created = crd.metadata.creation_timestamp
    return created or datetime.max.replace(tzinfo=UTC), crd.metadata.uid


def _candidates(wanted: CustomResourceDefinitionNames) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Reason of a conflict, field, and the names in it."""
    yield "PluralConflict", "plural", (wanted.plural,)
    yield "SingularConflict", "singular", (wanted.singular,)
    yield "ShortNamesConflict", "short_names", wanted.short_names
    yield "KindConflict", "kind", (wanted.kind,)
    yield "ListKindConflict", "list_kind", (wanted.list_kind,)


def _approval(crd: CustomResourceDefinition) -> Iterator[Condition]:
    if is_protected(crd.spec.group):
        value = crd.metadata.annotations.get(APPROVAL, "")
        unapproved = value.startswith("unapproved")
        message = f'protected groups must have approval annotation "{APPROVAL}", which is: "{value}"'
        yield Condition(
            type=APPROVAL_CONDITION,
            status="False" if unapproved else "True",
            reason="UnapprovedAnnotation" if unapproved else "ApprovedAnnotation",
            message=message,
        )


def _status_of(crd: CustomResourceDefinition, type_: str) -> str:
    return next((each.status for each in crd.status.conditions if each.type == type_), "")

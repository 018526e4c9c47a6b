"""Parts that the four RBAC kinds share: rules, references to roles, subjects, and their validation.

`app.plans.admission.rbac` decides by them; the kinds themselves are in modules of their own.
"""

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace

from app.kinds.auth.rbac_schema import Binding, PolicyRule, RoleRef, Subject
from app.machinery import name_validation
from app.machinery.base import Column, Object
from app.machinery.durations import age
from app.machinery.errors import Cause, invalid, not_supported, required

__all__ = [
    "ALL",
    "BINDING_COLUMNS",
    "GROUP",
    "ROLE_COLUMNS",
    "SERVICE_ACCOUNT",
    "USER",
    "USER_GROUP",
    "Binding",
    "PolicyRule",
    "RoleRef",
    "Subject",
    "binding_row",
    "changed_role",
    "faults_in_binding",
    "faults_in_rules",
    "prepare_binding",
    "role_row",
]


GROUP = "rbac.authorization.k8s.io"
ALL = "*"
SERVICE_ACCOUNT, USER, USER_GROUP = "ServiceAccount", "User", "Group"


def prepare_binding(binding: Any) -> Any:
    """Fill in the group of what is named; there is but one."""
    role_ref = binding.role_ref
    return replace(
        binding,
        role_ref=role_ref if role_ref.api_group else replace(role_ref, api_group=GROUP),
        subjects=tuple(map(_with_group, binding.subjects)),
    )


def _with_group(subject: Subject) -> Subject:
    if subject.api_group or subject.kind not in (USER, USER_GROUP):
        return subject
    return replace(subject, api_group=GROUP)


def faults_in_rules(rules: Iterable[PolicyRule], *, namespaced: bool) -> Iterator[Cause]:
    for index, rule in enumerate(rules):
        yield from _faults_in_rule(rule, f"rules[{index}]", namespaced)


def _faults_in_rule(rule: PolicyRule, path: str, namespaced: bool) -> Iterator[Cause]:
    if not rule.verbs:
        yield required(f"{path}.verbs", "verbs must contain at least one value")
    if rule.non_resource_urls:
        yield from _faults_in_urls(rule, f"{path}.nonResourceURLs", namespaced)
        return
    if not rule.api_groups:
        yield required(f"{path}.apiGroups", "resource rules must supply at least one api group")
    if not rule.resources:
        yield required(f"{path}.resources", "resource rules must supply at least one resource")


def _faults_in_urls(rule: PolicyRule, path: str, namespaced: bool) -> Iterator[Cause]:
    if namespaced:
        yield invalid(path, rule.non_resource_urls, "namespaced rules cannot apply to non-resource URLs")
    if rule.api_groups or rule.resources or rule.resource_names:
        text = "rules cannot apply to both regular resources and non-resource URLs"
        yield invalid(path, rule.non_resource_urls, text)


def faults_in_binding(binding: Binding, *, namespaced: bool) -> list[Cause]:
    causes = [*_faults_in_role_ref(binding.role_ref, ("Role", "ClusterRole") if namespaced else ("ClusterRole",))]
    for index, subject in enumerate(binding.subjects):
        causes += _faults_in_subject(subject, f"subjects[{index}]", namespaced)
    return causes


def _faults_in_role_ref(role_ref: RoleRef, kinds: tuple[str, ...]) -> Iterator[Cause]:
    if role_ref.api_group != GROUP:
        yield not_supported("roleRef.apiGroup", role_ref.api_group, (GROUP,))
    if role_ref.kind not in kinds:
        yield not_supported("roleRef.kind", role_ref.kind, kinds)
    if not role_ref.name:
        yield required("roleRef.name")
    for fault in name_validation.path_segment(role_ref.name):
        yield invalid("roleRef.name", role_ref.name, fault)


def _faults_in_subject(subject: Subject, path: str, namespaced: bool) -> Iterator[Cause]:
    if not subject.name:
        yield required(f"{path}.name")
    if subject.kind == SERVICE_ACCOUNT:
        yield from _faults_in_account(subject, path, namespaced)
    elif subject.kind in (USER, USER_GROUP):
        if not subject.name:
            yield invalid(f"{path}.name", "", f"{subject.kind.lower()} name cannot be empty")
        if subject.api_group != GROUP:
            yield not_supported(f"{path}.apiGroup", subject.api_group, (GROUP,))
    else:
        yield not_supported(f"{path}.kind", subject.kind, (SERVICE_ACCOUNT, USER, USER_GROUP))


def _faults_in_account(subject: Subject, path: str, namespaced: bool) -> Iterator[Cause]:
    for fault in name_validation.dns_subdomain(subject.name) if subject.name else ():
        yield invalid(f"{path}.name", subject.name, fault)
    if subject.api_group:
        yield not_supported(f"{path}.apiGroup", subject.api_group, ("",))
    if not namespaced and not subject.namespace:
        yield required(f"{path}.namespace")


def changed_role(new: Binding, old: Binding) -> list[Cause]:
    if new.role_ref == old.role_ref:
        return []
    return [invalid("roleRef", new.role_ref, "cannot change roleRef")]


# --- columns

ROLE_COLUMNS = (
    Column(name="Name", format="name", description="Name of the role."),
    Column(name="Created At", description="When the role was created."),
)


def role_row(role: Object, _: datetime) -> list[Any]:
    created = role.metadata.creation_timestamp
    return [role.metadata.name, f"{created.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}" if created else "<unknown>"]


BINDING_COLUMNS = (
    Column(name="Name", format="name", description="Name of the binding."),
    Column(name="Role", description="The role that it grants."),
    Column(name="Age", description="Time since the binding was created."),
    Column(name="Users", description="Users who are granted the role.", priority=1),
    Column(name="Groups", description="Groups that are granted the role.", priority=1),
    Column(name="ServiceAccounts", description="Service accounts that are granted the role.", priority=1),
)


def binding_row(binding: Binding, now: datetime) -> list[Any]:
    meta, role_ref = binding.metadata, binding.role_ref
    return [
        meta.name,
        f"{role_ref.kind}/{role_ref.name}",
        age(meta.creation_timestamp, now),
        _subject_names(binding, USER, lambda subject: subject.name),
        _subject_names(binding, USER_GROUP, lambda subject: subject.name),
        _subject_names(binding, SERVICE_ACCOUNT, lambda subject: f"{subject.namespace}/{subject.name}"),
    ]


def _subject_names(binding: Binding, kind: str, shown: Callable[[Subject], str]) -> str:
    return ", ".join(shown(subject) for subject in binding.subjects if subject.kind == kind)

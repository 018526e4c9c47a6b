"""Reviews of authorization.k8s.io: may I, may they. None of it is stored.

Fields that an answer always has are None until they are filled in: some clients insist on them.
"""

from collections.abc import Iterator
from typing import Annotated

import msgspec
from msgspec.structs import replace

from app.machinery.base import LabelSelectorRequirement, Object, ObjectMeta, Struct, at
from app.machinery.errors import Cause, invalid, required

GROUP = "authorization.k8s.io"


class FieldSelectorRequirement(Struct):
    """One demand on one field."""

    key: Annotated[str, at(1, "The field.", required=True)] = ""
    operator: Annotated[str, at(2, "In, NotIn, Exists or DoesNotExist.", required=True)] = ""
    values: Annotated[tuple[str, ...], at(3, "The values that In and NotIn compare with.")] = ()


class FieldSelectorAttributes(Struct):
    """The field selector of a request."""

    raw_selector: Annotated[str, at(1, "As it stands in a query.")] = ""
    requirements: Annotated[tuple[FieldSelectorRequirement, ...], at(2, "The same, parsed.")] = ()


class LabelSelectorAttributes(Struct):
    """The label selector of a request."""

    raw_selector: Annotated[str, at(1, "As it stands in a query.")] = ""
    requirements: Annotated[tuple[LabelSelectorRequirement, ...], at(2, "The same, parsed.")] = ()


class ResourceAttributes(Struct):
    """An action on a resource."""

    namespace: Annotated[str, at(1, "Namespace of the object; empty for all, and for what has none.")] = ""
    verb: Annotated[str, at(2, "get, list, watch, create, update, patch, delete, ...; * is every one.")] = ""
    group: Annotated[str, at(3, "Group of the resource; * is every one.")] = ""
    version: Annotated[str, at(4, "Version of the resource; * is every one.")] = ""
    resource: Annotated[str, at(5, "The resource; * is every one.")] = ""
    subresource: Annotated[str, at(6, "A part of it, such as log.")] = ""
    name: Annotated[str, at(7, "Name of the object; empty for all.")] = ""
    field_selector: Annotated[FieldSelectorAttributes | None, at(8, "What a list is narrowed to, by fields.")] = None
    label_selector: Annotated[LabelSelectorAttributes | None, at(9, "What a list is narrowed to, by labels.")] = None


class NonResourceAttributes(Struct):
    """An action on a path that is no resource."""

    path: Annotated[str, at(1, "The path.")] = ""
    verb: Annotated[str, at(2, "The HTTP method, in lower case.")] = ""


class SelfSubjectAccessReviewSpec(Struct):
    """What I would do: exactly one of the two."""

    resource_attributes: Annotated[ResourceAttributes | None, at(1, "Something on a resource.")] = None
    non_resource_attributes: Annotated[NonResourceAttributes | None, at(2, "Something on another path.")] = None


class SubjectAccessReviewSpec(Struct):
    """What somebody would do: exactly one of the first two, by somebody."""

    resource_attributes: Annotated[ResourceAttributes | None, at(1, "Something on a resource.")] = None
    non_resource_attributes: Annotated[NonResourceAttributes | None, at(2, "Something on another path.")] = None
    user: Annotated[str, at(3, "Who would.")] = ""
    groups: Annotated[tuple[str, ...], at(4, "The groups that they are in.")] = ()
    extra: Annotated[dict[str, tuple[str, ...]], at(5, "What else is known of them.")] = msgspec.field(
        default_factory=dict
    )
    uid: Annotated[str, at(6, "Their UID.")] = ""


class SubjectAccessReviewStatus(Struct):
    """Whether it is allowed."""

    allowed: Annotated[bool | None, at(1, "True if it is.", required=True)] = None
    denied: Annotated[bool, at(4, "Never true: rights only add up.")] = False
    reason: Annotated[str, at(2, "Through which binding.")] = ""
    evaluation_error: Annotated[str, at(3, "What went wrong while it was decided.")] = ""


class SelfSubjectAccessReview(Object):
    """Asks whether I may do something."""

    spec: Annotated[SelfSubjectAccessReviewSpec, at(2, "The question.", required=True)] = msgspec.field(
        default_factory=SelfSubjectAccessReviewSpec
    )
    status: Annotated[SubjectAccessReviewStatus, at(3, "Filled in by the server.")] = msgspec.field(
        default_factory=SubjectAccessReviewStatus
    )


class SubjectAccessReview(Object):
    """Asks whether somebody may do something."""

    spec: Annotated[SubjectAccessReviewSpec, at(2, "The question.", required=True)] = msgspec.field(
        default_factory=SubjectAccessReviewSpec
    )
    status: Annotated[SubjectAccessReviewStatus, at(3, "Filled in by the server.")] = msgspec.field(
        default_factory=SubjectAccessReviewStatus
    )


class LocalSubjectAccessReview(Object):
    """Asks whether somebody may do something in one namespace."""

    spec: Annotated[SubjectAccessReviewSpec, at(2, "The question.", required=True)] = msgspec.field(
        default_factory=SubjectAccessReviewSpec
    )
    status: Annotated[SubjectAccessReviewStatus, at(3, "Filled in by the server.")] = msgspec.field(
        default_factory=SubjectAccessReviewStatus
    )


class SelfSubjectRulesReviewSpec(Struct):
    """Where."""

    namespace: Annotated[str, at(1, "The namespace.")] = ""


class ResourceRule(Struct):
    """Something that may be done with resources."""

    verbs: Annotated[tuple[str, ...], at(1, "What may be done.", required=True)] = ()
    api_groups: Annotated[tuple[str, ...], at(2, "Groups of the resources.")] = ()
    resources: Annotated[tuple[str, ...], at(3, "The resources.")] = ()
    resource_names: Annotated[tuple[str, ...], at(4, "Only objects with these names; if empty, all.")] = ()


class NonResourceRule(Struct):
    """Something that may be done with other paths."""

    verbs: Annotated[tuple[str, ...], at(1, "What may be done.", required=True)] = ()
    non_resource_urls: Annotated[tuple[str, ...], at(2, "The paths.")] = msgspec.field(
        default=(), name="nonResourceURLs"
    )


class SubjectRulesReviewStatus(Struct):
    """All that may be done."""

    resource_rules: Annotated[tuple[ResourceRule, ...] | None, at(1, "With resources.", required=True)] = None
    non_resource_rules: Annotated[tuple[NonResourceRule, ...] | None, at(2, "With other paths.", required=True)] = None
    incomplete: Annotated[bool | None, at(3, "True if there may be more.", required=True)] = None
    evaluation_error: Annotated[str, at(4, "What went wrong while it was collected.")] = ""


class SelfSubjectRulesReview(Object):
    """Asks for all that I may do in a namespace."""

    spec: Annotated[SelfSubjectRulesReviewSpec, at(2, "The question.", required=True)] = msgspec.field(
        default_factory=SelfSubjectRulesReviewSpec
    )
    status: Annotated[SubjectRulesReviewStatus, at(3, "Filled in by the server.")] = msgspec.field(
        default_factory=SubjectRulesReviewStatus
    )


# --- validation

AccessReview = SelfSubjectAccessReview | SubjectAccessReview | LocalSubjectAccessReview


def faults_in_review(review: AccessReview) -> list[Cause]:
    causes = [*_faults_in_attributes(review.spec)]
    if not isinstance(review, SelfSubjectAccessReview) and not (review.spec.user or review.spec.groups):
        causes.append(invalid("spec.user", "", "at least one of user or group must be specified"))
    causes += _faults_in_selectors(review.spec.resource_attributes)
    local = isinstance(review, LocalSubjectAccessReview)
    metadata = replace(review.metadata, managed_fields=None, namespace="" if local else review.metadata.namespace)
    if metadata != ObjectMeta():
        text = "must be empty except for namespace" if local else "must be empty"
        causes.append(invalid("metadata", review.metadata, text))
    return causes + (_faults_in_place(review) if isinstance(review, LocalSubjectAccessReview) else [])


def _faults_in_attributes(spec: SelfSubjectAccessReviewSpec | SubjectAccessReviewSpec) -> Iterator[Cause]:
    resource, other = spec.resource_attributes, spec.non_resource_attributes
    if resource is not None and other is not None:
        text = "cannot be specified in combination with resourceAttributes"
        yield invalid("spec.nonResourceAttributes", other, text)
    if resource is None and other is None:
        text = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        yield invalid("spec.resourceAttributes", None, text)


def _faults_in_selectors(attributes: ResourceAttributes | None) -> Iterator[Cause]:
    if attributes is None:
        return
    for name, selector in (("fieldSelector", attributes.field_selector), ("labelSelector", attributes.label_selector)):
        if selector is not None:
            yield from _faults_in_selector(selector, f"spec.resourceAttributes.{name}")


def _faults_in_selector(selector: FieldSelectorAttributes | LabelSelectorAttributes, path: str) -> Iterator[Cause]:
    if selector.raw_selector and selector.requirements:
        text = "may not specified at the same time as requirements"  # so Kubernetes puts it
        yield invalid(f"{path}.rawSelector", selector.raw_selector, text)
    if not (selector.raw_selector or selector.requirements):
        yield required(f"{path}.requirements", f"when {path} is specified, requirements or rawSelector is required")
    requirements: tuple[FieldSelectorRequirement | LabelSelectorRequirement, ...] = selector.requirements
    for index, each in enumerate(requirements):
        if not each.key:
            yield required(f"{path}.requirements[{index}].key", "must be specified")


def _faults_in_place(review: LocalSubjectAccessReview) -> list[Cause]:
    causes, spec = [], review.spec
    if spec.resource_attributes is not None and spec.resource_attributes.namespace != review.metadata.namespace:
        namespace = spec.resource_attributes.namespace
        causes.append(invalid("spec.resourceAttributes.namespace", namespace, "must match metadata.namespace"))
    if spec.non_resource_attributes is not None:
        text = "disallowed on this kind of request"
        causes.append(invalid("spec.nonResourceAttributes", spec.non_resource_attributes, text))
    return causes

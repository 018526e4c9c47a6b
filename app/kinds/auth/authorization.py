"""Reviews of authorization.k8s.io: may I, may they. None of it is stored.

Fields that an answer always has are None until they are filled in: some clients insist on them.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from app.kinds.auth.authorization_schema import (
    FieldSelectorAttributes,
    FieldSelectorRequirement,
    LabelSelectorAttributes,
    LocalSubjectAccessReview,
    NonResourceAttributes,
    NonResourceRule,
    ResourceAttributes,
    ResourceRule,
    SelfSubjectAccessReview,
    SelfSubjectAccessReviewSpec,
    SelfSubjectRulesReview,
    SubjectAccessReview,
    SubjectAccessReviewSpec,
    SubjectAccessReviewStatus,
    SubjectRulesReviewStatus,
)
from app.machinery.base import LabelSelectorRequirement, ObjectMeta
from app.machinery.errors import Cause, invalid, required

__all__ = [
    "GROUP",
    "AccessReview",
    "FieldSelectorAttributes",
    "LocalSubjectAccessReview",
    "NonResourceAttributes",
    "NonResourceRule",
    "ResourceAttributes",
    "ResourceRule",
    "SelfSubjectAccessReview",
    "SelfSubjectRulesReview",
    "SubjectAccessReview",
    "SubjectAccessReviewStatus",
    "SubjectRulesReviewStatus",
    "faults_in_review",
]


GROUP = "authorization.k8s.io"


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

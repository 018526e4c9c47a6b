"""The ValidatingAdmissionPolicyBinding kind: puts a ValidatingAdmissionPolicy in force."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from app.kinds.admission.match_validation import validate_match
from app.kinds.admission.policy_schema import ParamRef, ValidatingAdmissionPolicyBinding
from app.kinds.admission.validating_admission_policy import GROUP, default_match
from app.machinery.base import Column, Kind
from app.machinery.durations import age
from app.machinery.errors import Cause, duplicate, forbidden, invalid, not_supported, required

__all__ = ["ACTIONS", "KIND", "ValidatingAdmissionPolicyBinding"]

ACTIONS = ("Audit", "Deny", "Warn")
NOT_FOUND_ACTIONS = ("Allow", "Deny")


def prepare(binding: ValidatingAdmissionPolicyBinding) -> ValidatingAdmissionPolicyBinding:
    spec = binding.spec
    return replace(binding, spec=replace(spec, match_resources=default_match(spec.match_resources)))


def on_create(binding: ValidatingAdmissionPolicyBinding, _: datetime) -> ValidatingAdmissionPolicyBinding:
    return replace(binding, metadata=replace(binding.metadata, generation=1))


def on_update(
    new: ValidatingAdmissionPolicyBinding, old: ValidatingAdmissionPolicyBinding
) -> ValidatingAdmissionPolicyBinding:
    generation = old.metadata.generation + (new.spec != old.spec)
    return replace(new, metadata=replace(new.metadata, generation=generation))


def validate(binding: ValidatingAdmissionPolicyBinding) -> list[Cause]:
    return list(_find_causes(binding))


def _find_causes(binding: ValidatingAdmissionPolicyBinding) -> Iterator[Cause]:
    spec = binding.spec
    if not spec.policy_name:
        yield required("spec.policyName")
    if spec.param_ref is not None:
        yield from _validate_param_ref(spec.param_ref)
    if spec.match_resources is not None:
        yield from validate_match(spec.match_resources, "spec.matchResources")
    actions = spec.validation_actions
    if not actions:
        yield required("spec.validationActions")
    for index, action in enumerate(actions):
        if action not in ACTIONS:
            yield not_supported(f"spec.validationActions[{index}]", action, ACTIONS)
        elif action in actions[:index]:
            yield duplicate(f"spec.validationActions[{index}]", action)
    if {"Deny", "Warn"} <= set(actions):
        yield invalid("spec.validationActions", list(actions), "must not contain both Deny and Warn")


def _validate_param_ref(ref: ParamRef) -> Iterator[Cause]:
    path = "spec.paramRef"
    if ref.selector is not None:
        yield forbidden(f"{path}.selector", "not supported here: set name")
    elif not ref.name:
        yield required(f"{path}.name")
    if not ref.parameter_not_found_action:
        yield required(f"{path}.parameterNotFoundAction")
    elif ref.parameter_not_found_action not in NOT_FOUND_ACTIONS:
        yield not_supported(f"{path}.parameterNotFoundAction", ref.parameter_not_found_action, NOT_FOUND_ACTIONS)


def row(binding: ValidatingAdmissionPolicyBinding, now: datetime) -> list[Any]:
    meta, ref = binding.metadata, binding.spec.param_ref
    params = "<unset>" if ref is None else f"{ref.namespace}/{ref.name}" if ref.namespace else f"*/{ref.name}"
    return [meta.name, binding.spec.policy_name, params, age(meta.creation_timestamp, now)]


KIND = Kind(
    type=ValidatingAdmissionPolicyBinding,
    group=GROUP,
    version="v1",
    plural="validatingadmissionpolicybindings",
    categories=("api-extensions",),
    namespaced=False,
    prepare=prepare,
    on_create=on_create,
    on_update=on_update,
    validate=validate,
    columns=(
        Column(name="Name", format="name", description="Name of the binding."),
        Column(name="PolicyName", description="Policy that it puts in force."),
        Column(name="ParamRef", description="The parameters."),
        Column(name="Age", description="Time since the binding was created."),
    ),
    row=row,
    example="""\
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: team-label
  labels:
    team: operations
spec:
  policyName: team-label
  validationActions: ["Deny"]
  matchResources:
    namespaceSelector:
      matchLabels:
        policies: strict
""",
)

"""Rule review: has the rules in CEL of a custom object's schema evaluated, in the process that evaluates admission policies.

Called by the strategy of custom kinds, after the object has been checked against the rest of its schema.
"""

from hashlib import sha256

import msgspec

from app.machinery import cel
from app.machinery.custom.custom_object import CustomObject
from app.machinery.custom.rules import Evaluation, Rule, cause_of, find_evaluations
from app.machinery.errors import Cause
from app.machinery.object_codec import json_document_of
from app.registry.admission.policy_evaluator import PolicyEvaluator
from app.registry.admission.policy_process import Ask

MOST = 10_000  # parts of one object with rules
TOO_MANY = "has too many values with validation rules; no validation rule was run"


async def find_broken_rules(evaluator: PolicyEvaluator, new: CustomObject, old: CustomObject | None) -> list[Cause]:
    """Return the rules that an object breaks. Without CEL none is evaluated, of which its definition has warned."""
    root = new.structural_schema.root
    if not root.has_rules or not cel.is_installed():
        return []
    before = json_document_of(old) if old is not None else None
    evaluations = list(find_evaluations(json_document_of(new), before, root))
    if not evaluations:
        return []
    if len(evaluations) > MOST:
        return [Cause("FieldValueInvalid", f"Invalid value: {TOO_MANY}", "<nil>")]
    return await _evaluate(evaluator, evaluations)


async def _evaluate(evaluator: PolicyEvaluator, evaluations: list[Evaluation]) -> list[Cause]:
    keys = [_key(each.rules) for each in evaluations]
    sets = dict(zip(keys, (each.rules for each in evaluations), strict=True))
    asks = [Ask(key, index) for index, key in enumerate(keys)]
    found = await evaluator.evaluate_rules(sets, [each.inputs for each in evaluations], asks)
    causes = []
    for evaluation, findings in zip(evaluations, found, strict=True):
        causes += [cause_of(evaluation, failure) for failure in findings.rules]
        if findings.error:
            causes.append(Cause("FieldValueInvalid", f"Invalid value: {findings.error}", evaluation.path or "<nil>"))
    return causes


def _key(rules: tuple[Rule, ...]) -> str:
    return sha256(msgspec.json.encode(rules)).hexdigest()

"""Evaluation: what the expressions of one policy say about one request, with one set of parameters. Pure.

`app.registry.admission.policy_process` calls it. An expression may run long or take all memory: never call it on an event loop.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from app.kinds.admission.policy_expressions import program, variables_in
from app.kinds.admission.policy_schema import ValidatingAdmissionPolicySpec
from app.machinery.cel import CelError
from app.machinery.custom.rules import RuleFailure

Inputs = Mapping[str, Any]
LONGEST_MESSAGE = 5 * 1024  # of a messageExpression, in bytes, as in Kubernetes


class Failure(msgspec.Struct, frozen=True):
    """A rule that an object breaks. `reason`: as the policy has it; empty for the default."""

    message: str
    reason: str = ""


class Findings(msgspec.Struct, frozen=True):
    """What a policy says. `applies`: False if a match condition excludes the request. `error`: what could not be evaluated.

    rules: of a custom object's schema, instead of a policy: those that it breaks.
    """

    applies: bool = True
    failures: tuple[Failure, ...] = ()
    notes: Mapping[str, str] = {}
    error: str = ""
    rules: tuple[RuleFailure, ...] = ()


NO_MATCH = Findings(applies=False)


def evaluate(spec: ValidatingAdmissionPolicySpec, inputs: Inputs) -> Findings:
    """Return what the policy says. `inputs` are the documents by the names of the variables of CEL: object, request, ..."""
    try:
        if not _meets_conditions(spec, inputs):
            return NO_MATCH
    except CelError as error:
        return Findings(error=str(error))
    evaluator = _Evaluator(spec, inputs)
    failures: list[Failure] = []
    notes: dict[str, str] = {}
    errors: list[str] = []
    for rule in spec.validations:
        try:
            if evaluator.value(rule.expression) is not True:
                message = evaluator.message(rule.message_expression) or rule.message.strip()
                failures.append(Failure(message or f"failed expression: {rule.expression.strip()}", rule.reason or ""))
        except CelError as error:
            errors.append(f"expression '{rule.expression.strip()}' resulted in error: {error}")
    for note in spec.audit_annotations:
        try:
            text = evaluator.value(note.value_expression)
            notes |= {note.key: text} if isinstance(text, str) and text else {}
        except CelError as error:
            errors.append(f"audit annotation '{note.key}' resulted in error: {error}")
    return Findings(failures=tuple(failures), notes=notes, error="; ".join(errors))


def _meets_conditions(spec: ValidatingAdmissionPolicySpec, inputs: Inputs) -> bool:
    """Return whether all match conditions hold. One that is false decides, even if another cannot be evaluated."""
    error: CelError | None = None
    for condition in spec.match_conditions:
        try:
            if program(spec, condition.expression, early=True).evaluate(inputs) is not True:
                return False
        except CelError as failed:
            error = failed
    if error is not None:
        raise error
    return True


class _Evaluator:
    """Evaluates expressions that share variables. A variable is computed when an expression names it, and once."""

    def __init__(self, spec: ValidatingAdmissionPolicySpec, inputs: Inputs) -> None:
        self._spec = spec
        self._inputs = inputs
        self._expressions = {each.name: each.expression for each in spec.variables}
        self._values: dict[str, Any] = {}
        self._errors: dict[str, CelError] = {}

    def value(self, expression: str) -> Any:
        """Return the value of an expression. Raises CelError, of a variable, too, if the expression gets as far as that."""
        needed = set(variables_in(expression))
        for name in needed:
            self._compute(name)
        known = {name: self._values[name] for name in needed if name in self._values}
        try:
            return program(self._spec, expression).evaluate({**self._inputs, "variables": known})
        except CelError:
            failed = next((self._errors[name] for name in needed if name in self._errors), None)
            if failed is not None:
                raise failed from None
            raise

    def _compute(self, name: str) -> None:
        if name in self._values or name in self._errors:
            return
        try:
            self._values[name] = self.value(self._expressions[name])
        except CelError as error:
            self._errors[name] = error

    def message(self, expression: str) -> str:
        """Return the text of a messageExpression; empty if there is none, or none that serves."""
        if not expression:
            return ""
        try:
            text = self.value(expression)
        except CelError:
            return ""
        if not isinstance(text, str) or len(text.encode()) > LONGEST_MESSAGE or "\n" in text:
            return ""
        return text.strip()

"""Expressions of a ValidatingAdmissionPolicy: the variables that each may use, and what is wrong with them.

Used by `validating_admission_policy`, which refuses a policy whose expressions cannot be compiled, and by what evaluates them.
"""

import re
from collections.abc import Iterator

from app.kinds.admission.policy_schema import ValidatingAdmissionPolicySpec
from app.machinery.cel import LONGEST, CelError, Program, compile_expression
from app.machinery.errors import Cause, invalid, required

MOST_CHARACTERS = 3 * LONGEST  # of all expressions of a policy together
_INPUTS = frozenset({"object", "oldObject", "request", "namespaceObject"})
_VARIABLE = re.compile(r"\bvariables\.([A-Za-z_]\w*)")
_ANY = ("DYN",)
_BOOL = ("BOOL", "DYN")
_STRING = ("STRING", "DYN")
_NOTE = ("STRING", "NULL", "NULL_TYPE", "DYN")


def names_of(spec: ValidatingAdmissionPolicySpec, *, early: bool = False) -> frozenset[str]:
    """Return the names that an expression may use. `early`: a match condition, for which no variables are computed."""
    return _INPUTS | ({"params"} if spec.param_kind else set()) | (set() if early else {"variables"})


def program(spec: ValidatingAdmissionPolicySpec, expression: str, *, early: bool = False) -> Program:
    """Return the compiled expression. Raises CelError."""
    return compile_expression(expression.strip(), names_of(spec, early=early))


def variables_in(expression: str) -> list[str]:
    """Return the names of the variables that an expression uses."""
    return _VARIABLE.findall(expression)


def find_faults(spec: ValidatingAdmissionPolicySpec) -> Iterator[Cause]:
    """Yield the faults of all expressions of a policy."""
    listed = list(_expressions(spec))
    if sum(len(expression) for _, expression, _, _ in listed) > MOST_CHARACTERS:
        detail = f"all expressions together must be no longer than {MOST_CHARACTERS} characters"
        yield Cause("FieldValueTooLong", f"Too long: {detail}", "spec")
        return
    known: set[str] = set()
    for path, expression, types, early in listed:
        yield from _faults_of(spec, path, expression, types, known, early=early)
        if path.startswith("spec.variables"):
            known.add(spec.variables[int(path.split("[")[1].split("]")[0])].name)


def _expressions(spec: ValidatingAdmissionPolicySpec) -> Iterator[tuple[str, str, tuple[str, ...], bool]]:
    """Yield path, text, allowed types, and whether it is a match condition; variables before what may use them."""
    for index, condition in enumerate(spec.match_conditions):
        yield f"spec.matchConditions[{index}].expression", condition.expression, _BOOL, True
    for index, variable in enumerate(spec.variables):
        yield f"spec.variables[{index}].expression", variable.expression, _ANY, False
    for index, rule in enumerate(spec.validations):
        yield f"spec.validations[{index}].expression", rule.expression, _BOOL, False
        if rule.message_expression:
            yield f"spec.validations[{index}].messageExpression", rule.message_expression, _STRING, False
    for index, note in enumerate(spec.audit_annotations):
        yield f"spec.auditAnnotations[{index}].valueExpression", note.value_expression, _NOTE, False


def _faults_of(
    spec: ValidatingAdmissionPolicySpec, path: str, text: str, types: tuple[str, ...], known: set[str], *, early: bool
) -> Iterator[Cause]:
    if not text.strip():
        yield required(path, "expression is not specified")
        return
    try:
        compiled = program(spec, text, early=early)
    except CelError as error:
        yield invalid(path, text[:LONGEST], f"compilation failed: {error}")
        return
    if types is not _ANY and compiled.type not in types:
        wanted = "bool" if types is _BOOL else "string"
        yield invalid(path, text, f"must evaluate to {wanted}")
    for name in variables_in(text):
        if name not in known:
            yield invalid(path, text, f"compilation failed: undefined field '{name}' of variables")

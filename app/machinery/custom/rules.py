"""Rules of schemas in CEL (x-kubernetes-validations): which are to be evaluated for an object, and what their failures say. Pure.

`app.registry.admission.rule_review` has them evaluated in the policy process, which `evaluate` runs in.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from app.machinery.cel import CelError, Program, compile_expression
from app.machinery.custom.correlation import elements_by_key, field_of, is_same, is_same_json, old_element
from app.machinery.custom.structural_schema import ABSENT, SchemaNode
from app.machinery.errors import Cause

_PATH_STEP = re.compile(r"\.([^.\[]+)|\['([^']*)'\]")
LONGEST_MESSAGE = 5 * 1024
_RESERVED = {
    *("true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if", "import"),
    *("let", "loop", "package", "namespace", "return", "var", "void", "while"),
}


class Rule(msgspec.Struct, frozen=True, rename="camel"):
    """One rule of a schema."""

    rule: str
    message: str = ""
    message_expression: str = ""
    reason: str = ""
    field_path: str = ""
    optional_old_self: bool = False

    @property
    def is_transition(self) -> bool:
        return re.search(r"\boldSelf\b", self.rule) is not None


class RuleFailure(msgspec.Struct, frozen=True):
    """A rule that does not hold, or could not be evaluated. `index` is its place among those of its part of the schema."""

    index: int
    message: str
    is_error: bool = False


class Evaluation(NamedTuple):
    """The rules of one part of a schema, and the values that they are about. `old` is absent where there is none to compare."""

    path: str
    rules: tuple[Rule, ...]
    inputs: Mapping[str, Any]


def rules_of(document: Mapping[str, Any]) -> tuple[Rule, ...]:
    """The rules of one part of a schema."""
    given = document.get("x-kubernetes-validations") or ()
    return tuple(msgspec.convert({"rule": "", **each}, Rule) for each in given)


def compile_rule(rule: Rule, expression: str) -> Program:
    """Compile a rule, or the expression of its message. Raises CelError."""
    if rule.optional_old_self:
        return compile_expression(_OPTIONAL % expression.strip(), frozenset({"self", "old_self", "has_old_self"}))
    return compile_expression(expression.strip(), frozenset({"self", "oldSelf"}))


_OPTIONAL = "cel.bind(oldSelf, has_old_self ? optional.of(old_self) : optional.none(), %s)"


def evaluate(rules: tuple[Rule, ...], inputs: Mapping[str, Any]) -> list[RuleFailure]:
    """Return the rules that fail. Never on an event loop: a rule may run long."""
    failures = []
    for index, each in enumerate(rules):
        if each.is_transition and "oldSelf" not in inputs and not each.optional_old_self:
            continue
        try:
            if compile_rule(each, each.rule).evaluate(_inputs_of(each, inputs)) is not True:
                failures.append(RuleFailure(index, _message(each, inputs)))
        except CelError as error:
            failures.append(RuleFailure(index, _error_message(each, error), is_error=True))
            if error.is_over_budget:
                break
    return failures


def _error_message(rule: Rule, error: CelError) -> str:
    which = (rule.message or rule.rule).strip()
    if error.is_over_budget:
        why = "no further validation rules will be run due to call cost exceeds limit for rule"
        return f"'operation cancelled: actual cost limit exceeded': {why}: {which}"
    return f"{_error_text(error)} evaluating rule: {which}"


def _inputs_of(rule: Rule, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the rule's variables stand for."""
    if not rule.optional_old_self:
        return inputs
    return {**inputs, "old_self": inputs.get("oldSelf"), "has_old_self": "oldSelf" in inputs}


def _error_text(error: CelError) -> str:
    """The error in the words of cel-go."""
    text = re.sub(r"^[A-Z_]+: ", "", str(error))
    text = re.sub(r'^Key not found in map : "(.*)"$', r"no such key: \1", text)
    return "division by zero" if text == "divide by zero" else text


def _message(rule: Rule, inputs: Mapping[str, Any]) -> str:
    if rule.message_expression:
        try:
            text = compile_rule(rule, rule.message_expression).evaluate(_inputs_of(rule, inputs))
        except CelError:
            text = ""
        if isinstance(text, str) and text.strip() and "\n" not in text and len(text.encode()) <= LONGEST_MESSAGE:
            return text.strip()
    return rule.message.strip() or f"failed rule: {rule.rule.strip()}"


def cause_of(evaluation: Evaluation, failure: RuleFailure) -> Cause:
    """The cause of a 422."""
    rule = evaluation.rules[failure.index]
    path = evaluation.path
    if rule.field_path and not failure.is_error:
        for field, quoted in _PATH_STEP.findall(rule.field_path):
            path = f"{path}.{field or quoted}" if path else field or quoted
    reason = "" if failure.is_error else rule.reason
    if reason == "FieldValueForbidden":
        return Cause(reason, f"Forbidden: {failure.message}", path or "<nil>")
    if reason == "FieldValueRequired":
        return Cause(reason, f"Required value: {failure.message}", path or "<nil>")
    if reason == "FieldValueDuplicate":
        return Cause(reason, "Duplicate value", path or "<nil>")
    return Cause("FieldValueInvalid", f"Invalid value: {failure.message}", path or "<nil>")


def find_evaluations(new: Any, old: Any, root: SchemaNode) -> Iterator[Evaluation]:
    """Yield what is to be evaluated for an object; `old` is None for a new one. Of what did not change, only transition rules."""
    yield from _walk(new, ABSENT if old is None else old, root, "")


def _walk(value: Any, old: Any, node: SchemaNode, path: str) -> Iterator[Evaluation]:
    if not node.has_rules or (value is None and node.nullable):
        return
    is_unchanged = old is not ABSENT and (is_same_json(value, old) or is_same(value, old, node))
    if is_unchanged and not node.has_transition_rules:
        return
    rules = rules_of(node.document)
    if (
        is_unchanged
    ):  # a rule that it broke before is no reason to refuse another change, unless the rule is about changes
        rules = tuple(each for each in rules if each.is_transition)
    if rules:
        inputs = {"self": _for_cel(value, node)}
        if old is not ABSENT:
            inputs["oldSelf"] = _for_cel(old, node)
        yield Evaluation(path, rules, inputs)
    if isinstance(value, dict):
        yield from _walk_fields(value, old, node, path)
    elif isinstance(value, list) and node.items is not None:
        before = elements_by_key(old, node)
        for index, each in enumerate(value):
            yield from _walk(each, old_element(each, before, node), node.items, f"{path}[{index}]")


def _walk_fields(value: dict[str, Any], old: Any, node: SchemaNode, path: str) -> Iterator[Evaluation]:
    for name, each in value.items():
        if name in node.properties:
            yield from _walk(each, field_of(old, name), node.properties[name], f"{path}.{name}" if path else name)
        elif node.additional is not None:
            yield from _walk(each, field_of(old, name), node.additional, f"{path}[{name}]")


def _for_cel(value: Any, node: SchemaNode) -> Any:
    """The value as expressions see it: names of fields that CEL cannot have are written otherwise."""
    if isinstance(value, dict):
        return {
            escape(name) if name in node.properties else name: _for_cel(
                each, node.properties.get(name) or node.additional or _PLAIN
            )
            for name, each in value.items()
        }
    if isinstance(value, list):
        return [_for_cel(each, node.items or _PLAIN) for each in value]
    return float(value) if "number" in node.types and isinstance(value, int) else value


_PLAIN = SchemaNode({})


def escape(name: str) -> str:
    """The name of a field in CEL."""
    if name in _RESERVED:
        return f"__{name}__"
    for text, word in (("__", "__underscores__"), (".", "__dot__"), ("-", "__dash__"), ("/", "__slash__")):
        name = name.replace(text, word)
    return name

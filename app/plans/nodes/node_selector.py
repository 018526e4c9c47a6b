"""Node selector matching: terms are alternatives, the requirements in one must all hold. Pure."""

import re
from collections.abc import Callable, Mapping

from app.kinds.core.node import Node
from app.kinds.pod.affinity import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm


def selects(selector: NodeSelector, node: Node) -> bool:
    return any(selects_term(term, node) for term in selector.node_selector_terms)


def selects_term(term: NodeSelectorTerm, node: Node) -> bool:
    """An empty term selects nothing (core/v1)."""
    if not term.match_expressions and not term.match_fields:
        return False
    fields = {"metadata.name": node.metadata.name}
    return all(_matches_requirement(each, node.metadata.labels) for each in term.match_expressions) and all(
        _matches_requirement(each, fields) for each in term.match_fields
    )


def _matches_requirement(requirement: NodeSelectorRequirement, labels: Mapping[str, str]) -> bool:
    test = _TESTS.get(requirement.operator)
    return test is not None and test(labels.get(requirement.key), requirement.values)


_NUMBER = re.compile(r"[+-]?[0-9]+")
_INT64 = range(-(2**63), 2**63)
_LONGEST = 63  # characters of a label


def _parse_number(text: str | None) -> int | None:
    """As Go parses integers: Python would accept 1_000."""
    if not text or len(text) > _LONGEST or not _NUMBER.fullmatch(text):
        return None
    found = int(text)
    return found if found in _INT64 else None


def _compare(value: str | None, values: tuple[str, ...], sign: int) -> bool:
    here, limit = _parse_number(value), _parse_number(values[0] if values else None)
    return here is not None and limit is not None and (here - limit) * sign > 0


_TESTS: Mapping[str, Callable[[str | None, tuple[str, ...]], bool]] = {
    "In": lambda value, values: value is not None and value in values,
    "NotIn": lambda value, values: value is None or value not in values,
    "Exists": lambda value, _: value is not None,
    "DoesNotExist": lambda value, _: value is None,
    "Gt": lambda value, values: _compare(value, values, 1),
    "Lt": lambda value, values: _compare(value, values, -1),
}

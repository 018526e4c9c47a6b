"""Label and field selectors: parsed from query strings or from a LabelSelector, then matched against objects.

Lists, watches and controllers call this. Every watch event is matched, so parsing does all work that can be done once.
Errors are 400s with the messages of apimachinery's `labels` and `fields`.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from app.machinery import name_validation
from app.machinery.base import LabelSelector, LabelSelectorRequirement
from app.machinery.errors import bad_request, format_value

_MISSING = frozenset({None})


class Requirement(NamedTuple):
    """One requirement on a label: its value, None if the label is missing, is (not) among `values`."""

    key: str
    values: frozenset[str | None]
    among: bool


class Bound(NamedTuple):
    """One requirement Gt or Lt: the label is an integer above, or below, a limit."""

    key: str
    limit: int
    above: bool

    def matches(self, labels: Mapping[str, str]) -> bool:
        try:
            value = int(labels[self.key])
        except (KeyError, ValueError):
            return False
        return value > self.limit if self.above else value < self.limit


@dataclass(frozen=True, slots=True)
class Selector:
    """Requirements on labels that must all hold; without any, everything matches."""

    requirements: tuple[Requirement, ...] = ()
    bounds: tuple[Bound, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        for key, values, among in self.requirements:
            if (labels.get(key) in values) is not among:
                return False
        return all(bound.matches(labels) for bound in self.bounds) if self.bounds else True

    def requirement(self, key: str) -> str | None:
        """Return the single value that the label must have, for an index lookup; None if there is no such value."""
        for each in self.requirements:
            if each.key == key and each.among and len(each.values) == 1:
                return next(iter(each.values))
        return None

    def wanted(self) -> dict[str, tuple[str, ...]]:
        """Labels that whatever matches has, each with one of these values, as far as the requirements name a few."""
        return {
            key: tuple(sorted(value for value in values if value is not None))
            for key, values, among in self.requirements
            if among and None not in values and 0 < len(values) <= MOST_WANTED
        }


MOST_WANTED = 100  # values of one label that the database looks for
MOST_REQUIREMENTS = 1_000  # of one selector in a query: each object of a list is compared with all of them

EVERYTHING = Selector()
NOTHING = Selector((Requirement("", frozenset(), True),))


def from_label_selector(selector: LabelSelector | None) -> Selector:
    """Convert a LabelSelector of a spec: None selects nothing, an empty one everything (LabelSelectorAsSelector)."""
    if selector is None:
        return NOTHING
    exact = (_in_requirement(key, (value,)) for key, value in selector.match_labels.items())
    further = (_convert_expression(each.key, each.operator, each.values) for each in selector.match_expressions)
    return Selector((*exact, *further))


def format_selector(selector: LabelSelector | None) -> str:
    """The selector as a text that `parse_labels` reads; empty if it selects nothing or everything."""
    if selector is None:
        return ""
    texts = [(key, f"{key}={value}") for key, value in selector.match_labels.items()]
    texts += [(each.key, _format_expression(each)) for each in selector.match_expressions]
    return ",".join(text for _, text in sorted(texts))


def _format_expression(each: LabelSelectorRequirement) -> str:
    if each.operator == "Exists":
        return each.key
    if each.operator == "DoesNotExist":
        return f"!{each.key}"
    return f"{each.key} {each.operator.lower()} ({','.join(sorted(each.values))})"


def _in_requirement(key: str, values: Iterable[str]) -> Requirement:
    return Requirement(key, frozenset(values), True)


def _convert_expression(key: str, operator: str, values: tuple[str, ...]) -> Requirement:
    match operator:
        case "In":
            return _in_requirement(key, values)
        case "NotIn":
            return Requirement(key, frozenset(values), False)
        case "Exists":
            return Requirement(key, _MISSING, False)
        case "DoesNotExist":
            return Requirement(key, _MISSING, True)
    raise bad_request(f"{format_value(operator)} is not a valid label selector operator")


def parse_labels(text: str) -> Selector:
    """Parse the query parameter labelSelector, such as `app=web,tier in (a, b),!legacy`."""
    return _LabelParser(text).parse() if text else EVERYTHING


class _LabelParser:
    """Parses a label selector token by token. Operators such as `in` are valid values, too."""

    _TOKEN = re.compile(r"[ \t\r\n]*(==|!=|[=!(),<>]|[^ \t\r\n=!(),<>]+)")
    _SYMBOLS = frozenset({"", "=", "==", "!=", "!", "(", ")", ",", "<", ">"})
    _OPERATORS = ("in", "notin", "=", "==", "!=", "gt", "lt")

    def __init__(self, text: str) -> None:
        self._tokens = self._tokenize(text)
        self._next = next(self._tokens)

    def _tokenize(self, text: str) -> Iterator[str]:
        yield from (match[1] for match in self._TOKEN.finditer(text.rstrip(" \t\r\n")))
        while True:
            yield ""

    def _consume(self) -> str:
        token, self._next = self._next, next(self._tokens)
        return token

    def _parse_identifier(self, expected: str = "identifier") -> str:
        token = self._consume()
        if token in self._SYMBOLS:
            raise _parse_error(f"found '{token}', expected: {expected}")
        return token

    def parse(self) -> Selector:
        found: list[Requirement | Bound] = []
        while self._next:
            if self._next in self._SYMBOLS - {"!"}:
                raise bad_request(f"found '{self._next}', expected: !, identifier, or 'end of string'")
            found.append(self._parse_requirement())
            self._parse_separator()
            check_requirement_count(len(found))
        return Selector(
            tuple(each for each in found if isinstance(each, Requirement)),
            tuple(each for each in found if isinstance(each, Bound)),
        )

    def _parse_separator(self) -> None:
        token = self._consume()
        if token not in {"", ","}:
            raise bad_request(f"found '{token}', expected: ',' or 'end of string'")
        if token and self._next in self._SYMBOLS - {"!"}:
            raise bad_request(f"found '{self._next}', expected: identifier after ','")

    def _parse_requirement(self) -> Requirement | Bound:
        absent = self._next == "!" and bool(self._consume())
        key = self._parse_identifier()
        _check_valid("<nil>", key, name_validation.qualified_name(key))
        if absent or self._next in {"", ","}:
            return Requirement(key, _MISSING, absent)
        operator = self._consume()
        match operator:
            case "in" | "notin":
                return Requirement(key, self._parse_values(key), operator == "in")
            case "=" | "==" | "!=":
                return Requirement(key, self._validate_values(key, [self._parse_exact_value()]), operator != "!=")
            case ">" | "<":
                return self._parse_bound(key, operator)
        raise _parse_error(f"found '{operator}', expected: {', '.join(self._OPERATORS)}")

    def _parse_exact_value(self) -> str:
        return "" if self._next in {"", ","} else self._parse_identifier()

    def _parse_values(self, key: str) -> frozenset[str | None]:
        """Parse the values in parentheses; an omitted value before, between or after commas is the empty value."""
        if (opening := self._consume()) != "(":
            raise _parse_error(f"found '{opening}' expected: '('")
        values = []
        while True:
            values.append("" if self._next in {",", ")"} else self._parse_identifier("',', ')' or identifier"))
            match self._consume():
                case ")":
                    return self._validate_values(key, values)
                case other if other != ",":
                    raise _parse_error(f"found '{other}', expected: ',' or ')'")

    def _validate_values(self, key: str, values: list[str]) -> frozenset[str | None]:
        for index, value in enumerate(values):
            _check_valid(f"values[{index}][{key}]", value, name_validation.label_value(value))
        return frozenset(values)

    def _parse_bound(self, key: str, operator: str) -> Bound:
        value = self._parse_exact_value()
        if not re.fullmatch(r"[+-]?\d{1,19}", value, re.ASCII):
            _check_valid("values[0]", value, ["for 'Gt', 'Lt' operators, the value must be an integer"])
        return Bound(key, int(value), operator == ">")


def check_requirement_count(requirements: int) -> None:
    if requirements > MOST_REQUIREMENTS:
        raise bad_request(f"a selector may have at most {MOST_REQUIREMENTS} requirements")


def _parse_error(why: str) -> Exception:
    return bad_request(f"unable to parse requirement: {why}")


def _check_valid(path: str, value: str, problems: list[str]) -> None:
    if problems:
        raise _parse_error(f"{path}: Invalid value: {format_value(value)}: {'; '.join(problems)}")


class FieldRequirement(NamedTuple):
    """One requirement on a field: its value equals, or does not equal, `value`."""

    name: str
    value: str
    equal: bool


@dataclass(frozen=True, slots=True)
class FieldSelector:
    """Requirements on fields that must all hold; without any, everything matches. A missing field is empty."""

    requirements: tuple[FieldRequirement, ...] = ()

    def matches(self, fields: Mapping[str, str]) -> bool:
        return all((fields.get(name, "") == value) is equal for name, value, equal in self.requirements)

    def requirement(self, name: str) -> str | None:
        """Return the single value that the field must have, for an index lookup; None if there is no such value."""
        for each in self.requirements:
            if each.name == name and each.equal:
                return each.value
        return None

    def wanted(self) -> dict[str, str]:
        """Fields that whatever matches has; none that may be missing, and not those of the object's key."""
        return {
            name: value
            for name, value, equal in self.requirements
            if equal and value and name not in {"metadata.name", "metadata.namespace"}
        }

    def renamed(self, names: Mapping[str, str]) -> "FieldSelector":
        """The same requirements on fields under other names; those without one keep theirs."""
        return FieldSelector(tuple(each._replace(name=names.get(each.name, each.name)) for each in self.requirements))

    def check(self, supported: Collection[str]) -> None:
        """Raise 400 for a field that the kind cannot select on; metadata.name and metadata.namespace always can."""
        for name, _, _ in self.requirements:
            if name not in supported and name not in {"metadata.name", "metadata.namespace"}:
                raise bad_request(f"field label not supported: {name}")


EVERY_FIELD = FieldSelector()

_TERM = re.compile(r"(?:[^\\,]|\\.?)+", re.DOTALL)
_SPLIT = re.compile(r"(.*?)(!=|==|=)(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(.?)", re.DOTALL)


def parse_fields(text: str) -> FieldSelector:
    """Parse the query parameter fieldSelector: `status.phase!=Running,spec.nodeName=`; \\ escapes a comma or = in a value."""
    if not text:
        return EVERY_FIELD
    terms = _TERM.findall(text)
    check_requirement_count(len(terms))
    return FieldSelector(tuple(_parse_field_term(term, text) for term in terms))


def _parse_field_term(term: str, text: str) -> FieldRequirement:
    parts = _SPLIT.fullmatch(term)
    if not parts:
        raise bad_request(f"invalid selector: '{text}'; can't understand '{term}'")
    name, operator, value = parts.groups()
    return FieldRequirement(name, _unescape(value), operator != "!=")


def _unescape(value: str) -> str:
    for escape in _ESCAPE.finditer(value):
        if escape[1] not in {"\\", ",", "="}:
            raise bad_request(f"invalid field selector: invalid escape sequence: {escape[0]}")
    if "=" in _ESCAPE.sub("", value):
        raise bad_request("invalid field selector: unescaped character in value: 61")
    return _ESCAPE.sub(r"\1", value)

"""Label and field selectors: what they match, and how they are refused."""

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from app.machinery.base import LabelSelector, LabelSelectorRequirement
from app.machinery.errors import ApiError
from app.machinery.selectors import EVERYTHING, FieldSelector, from_label_selector, parse_fields, parse_labels

WEB = {"app": "web", "tier": "front", "example.com/size": "12"}


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="nothing asked"),
        pytest.param("app=web", id="equal"),
        pytest.param("app==web,tier=front", id="two demands"),
        pytest.param(" app = web , tier = front ", id="spaces"),
        pytest.param("app!=db", id="not equal"),
        pytest.param("zone!=a", id="not equal when missing"),
        pytest.param("app in (db, web)", id="in a set"),
        pytest.param("app notin (db)", id="not in a set"),
        pytest.param("zone notin (a,b)", id="not in a set when missing"),
        pytest.param("app", id="exists"),
        pytest.param("!zone,app", id="does not exist"),
        pytest.param("example.com/size>11", id="greater"),
        pytest.param("example.com/size<13", id="less"),
        pytest.param("app,tier notin (in,notin),!in", id="operators as values and keys"),
        pytest.param("tier,app", id="only keys"),
    ],
)
def test_matches(text: str) -> None:
    assert parse_labels(text).matches(WEB)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("app=db", id="another value"),
        pytest.param("zone=", id="empty value of a missing label"),
        pytest.param("app=web,tier=back", id="one of two"),
        pytest.param("app!=web", id="equal but must not"),
        pytest.param("zone in (a)", id="missing but must be in a set"),
        pytest.param("app notin (web)", id="in a set but must not"),
        pytest.param("zone", id="missing"),
        pytest.param("!app", id="there but must not"),
        pytest.param("example.com/size>12", id="not greater"),
        pytest.param("app<5", id="no number"),
        pytest.param("zone>5", id="no label to compare"),
    ],
)
def test_does_not_match(text: str) -> None:
    assert not parse_labels(text).matches(WEB)


def test_an_empty_value_is_a_value() -> None:
    assert parse_labels("a=,b in (),c in (x,)").matches({"a": "", "b": "", "c": ""})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(
            "a b",
            "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt",
            id="a word that is no operator",
        ),
        pytest.param("a=b c", "found 'c', expected: ',' or 'end of string'", id="two values"),
        pytest.param("a=b,", "found '', expected: identifier after ','", id="a trailing comma"),
        pytest.param("=b", "found '=', expected: !, identifier, or 'end of string'", id="no key"),
        pytest.param("!", "unable to parse requirement: found '', expected: identifier", id="a lone exclamation mark"),
        pytest.param("!a=b", "found '=', expected: ',' or 'end of string'", id="absent and equal"),
        pytest.param("a in b", "unable to parse requirement: found 'b' expected: '('", id="a set without parentheses"),
        pytest.param(
            "a in (b c)", "unable to parse requirement: found 'c', expected: ',' or ')'", id="a set without commas"
        ),
        pytest.param("a in (b", "unable to parse requirement: found '', expected: ',' or ')'", id="an open set"),
        pytest.param(
            "a>b",
            'unable to parse requirement: values[0]: Invalid value: "b": '
            "for 'Gt', 'Lt' operators, the value must be an integer",
            id="greater than a word",
        ),
        pytest.param(
            "a/b/c=d",
            'unable to parse requirement: <nil>: Invalid value: "a/b/c": a valid label key must consist of',
            id="a key that cannot be",
        ),
        pytest.param(
            "a=b/c",
            'unable to parse requirement: values[0][a]: Invalid value: "b/c": a valid label must be an empty string',
            id="a value that cannot be",
        ),
    ],
)
def test_refuses_labels(text: str, message: str) -> None:
    with pytest.raises(ApiError) as refused:
        parse_labels(text)

    assert refused.value.code == 400
    assert refused.value.message.startswith(message)


def test_a_label_selector_matches_as_its_demands_say() -> None:
    demands = (("a", "In", ("1", "2")), ("b", "NotIn", ("3",)), ("c", "Exists", ()), ("d", "DoesNotExist", ()))
    selector = from_label_selector(
        LabelSelector(
            match_labels={"app": "web"},
            match_expressions=tuple(
                LabelSelectorRequirement(key=key, operator=operator, values=values) for key, operator, values in demands
            ),
        )
    )

    assert selector.matches({"app": "web", "a": "2", "c": ""})
    assert not selector.matches({"app": "web", "a": "3", "c": ""})
    assert not selector.matches({"app": "web", "a": "2", "c": "", "d": ""})


def test_no_label_selector_selects_nothing_and_an_empty_one_everything() -> None:
    assert not from_label_selector(None).matches(WEB)
    assert from_label_selector(LabelSelector()).matches({})
    assert EVERYTHING.matches({})


def test_refuses_an_unknown_operator_in_a_label_selector() -> None:
    selector = LabelSelector(match_expressions=(LabelSelectorRequirement(key="a", operator="Like"),))

    with pytest.raises(ApiError, match='"Like" is not a valid label selector operator'):
        from_label_selector(selector)


def test_tells_the_one_value_a_label_must_have() -> None:
    selector = parse_labels("app=web,tier!=back,size in (1,2)")

    assert [selector.requirement(key) for key in ("app", "tier", "size", "zone")] == ["web", None, None, None]


POD = {"status.phase": "Running", "spec.nodeName": "", "metadata.name": "a,b=c"}


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="nothing asked"),
        pytest.param("status.phase=Running", id="equal"),
        pytest.param("status.phase==Running,,spec.nodeName=", id="an empty value and an empty term"),
        pytest.param("status.phase!=Failed", id="not equal"),
        pytest.param(r"metadata.name=a\,b\=c", id="escapes"),
        pytest.param("spec.other=", id="empty when missing"),
    ],
)
def test_matches_fields(text: str) -> None:
    assert parse_fields(text).matches(POD)


@pytest.mark.parametrize("text", ["status.phase=Failed", "status.phase!=Running", "spec.nodeName=n1"])
def test_does_not_match_fields(text: str) -> None:
    assert not parse_fields(text).matches(POD)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("a", "invalid selector: 'a'; can't understand 'a'", id="without an operator"),
        pytest.param(
            r"a=\x", r"invalid field selector: invalid escape sequence: \x", id="with an escape that means nothing"
        ),
        pytest.param("a=b\\", "invalid field selector: invalid escape sequence: \\", id="that ends in an escape"),
        pytest.param(
            "a=b=c", "invalid field selector: unescaped character in value: 61", id="with a bare = in the value"
        ),
    ],
)
def test_refuses_a_field_selector(text: str, message: str) -> None:
    with pytest.raises(ApiError) as refused:
        parse_fields(text)

    assert (refused.value.code, refused.value.message) == (400, message)


def test_refuses_fields_that_the_kind_does_not_know() -> None:
    selector = parse_fields("metadata.name=a,status.phase=Running,spec.colour=red")

    with pytest.raises(ApiError, match=r"^field label not supported: spec\.colour$"):
        selector.check({"status.phase"})
    selector.check({"status.phase", "spec.colour"})


def test_tells_the_one_value_a_field_must_have() -> None:
    selector = parse_fields("spec.nodeName=n1,status.phase!=Failed")

    assert (selector.requirement("spec.nodeName"), selector.requirement("status.phase")) == ("n1", None)


ALPHABET = "ab.-/=!<>(), \\\t\u00e9"


@given(some.text(ALPHABET + "inot", max_size=30))
def test_any_text_is_a_selector_or_a_bad_request(text: str) -> None:
    for parse in (parse_labels, parse_fields):
        with contextlib.suppress(ApiError):
            parse(text).matches(WEB)


@given(some.dictionaries(some.text("ab", min_size=1), some.text(max_size=5), max_size=3))
def test_fields_match_themselves_whatever_is_in_them(fields: dict[str, str]) -> None:
    terms = (f"{name}={_escaped(value)}" for name, value in fields.items())

    selector = parse_fields(",".join(terms))

    assert isinstance(selector, FieldSelector)
    assert selector.matches(fields)
    assert all(selector.requirement(name) == value for name, value in fields.items())


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace(",", "\\,").replace("=", "\\=")


@pytest.mark.parametrize("parse", [parse_labels, parse_fields])
def test_a_selector_has_only_so_many_requirements(parse: Any) -> None:
    parse(",".join(["a=b"] * 1_000))
    with pytest.raises(ApiError, match="at most 1000 requirements"):
        parse(",".join(["a=b"] * 1_001))


def test_labels_that_are_wanted_are_those_that_every_match_has() -> None:
    selector = parse_labels("app=a,tier in (x, y),zone!=z,!old,new,size in (),rack=")

    assert selector.wanted() == {"app": ("a",), "tier": ("x", "y"), "rack": ("",), "size": ("",)}
    assert parse_labels(f"app in ({','.join(f'v{number}' for number in range(101))})").wanted() == {}

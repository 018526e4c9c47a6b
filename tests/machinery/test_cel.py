"""CEL as policies use it: what Kubernetes adds to the language, what is refused when it is compiled, and what fails later."""

import subprocess
import sys
from typing import Any

import pytest

from app.machinery.cel import INSTALL, CelError, compile_expression

NAMES = frozenset({"object"})
OBJECT = {"name": "a", "list": [1, 2.5, 4], "words": ["b", "a"], "cpu": "1500m", "labels": {"team": "x"}}


def value(expression: str) -> Any:
    return compile_expression(expression, NAMES).evaluate({"object": OBJECT})


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("quantity(object.cpu).isGreaterThan(quantity('1'))", True),
        ("quantity('1Gi').isLessThan(quantity('1G'))", False),
        ("quantity('1') == quantity('1000m')", True),
        ("quantity('2').compareTo(quantity('2000m'))", 0),
        ("quantity('1').add(quantity('500m')).asApproximateFloat()", 1.5),
        ("quantity('1').sub(quantity('2')).sign()", -1),
        ("quantity('2k').asInteger()", 2000),
        ("quantity('1500m').isInteger()", False),
        ("isQuantity('1Zi')", False),
        ("isQuantity('10Mi')", True),
        ("object.list.sum()", 7.5),
        ("object.list.max()", 4),
        ("object.words.min()", "a"),
        ("object.words.isSorted()", False),
        ("object.words.indexOf('a')", 1),
        ("object.words.indexOf('z')", -1),
        ("object.?labels.team.orValue('none')", "x"),
        ("object.?nothing.orValue('none')", "none"),
        ("has(object.labels.team) && !has(object.labels.other)", True),
        ("cel.bind(n, object.name + 'b', n + n)", "abab"),
        ("'a,b'.split(',').size() == 2 && '%d of %s'.format([1, 'x']) == '1 of x'", True),
        ("object.name.matches('^[a-z]$')", True),
        ("object.words.exists_one(w, w == 'a') && object.words.map(w, w + w) == ['bb', 'aa']", True),
        ("math.greatest(1, 2) == 2", True),
    ],
)
def test_an_expression(expression: str, expected: Any) -> None:
    assert value(expression) == expected


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("object.", "Syntax error"),
        ("other == 1", "<input>:1:1: undeclared reference to 'other'"),
        ("1 + 'a' == 2", "found no matching overload for '_+_' applied to '(int, string)'"),
        ("(" * 40 + "1" + ")" * 40, "recursion limit"),
        ("'" + "a" * 5000 + "' == ''", "no longer than 4096 characters"),
    ],
)
def test_what_cannot_be_compiled(expression: str, why: str) -> None:
    with pytest.raises(CelError) as error:
        compile_expression(expression, NAMES)
    assert why in str(error.value)


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("object.nothing == 1", "Key not found"),
        ("object.name + 1 == 2", "No matching overloads"),
        ("quantity('1z') == ''", "quantities must match"),
        ("quantity('1500m').asInteger() == 1", "cannot convert value to integer"),
        (f"[{'1,' * 200}1].all(a, [{'1,' * 200}1].all(b, a == b))", "budget exceeded"),
    ],
)
def test_what_fails_when_it_is_evaluated(expression: str, why: str) -> None:
    with pytest.raises(CelError) as error:
        value(expression)
    assert why in str(error.value)


def test_without_the_library_it_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['cel_expr_python'] = None\n"
        "from app.kinds.admission.validating_admission_policy import KIND\n"
        "from app.machinery.decoding import decode\n"
        "policy = decode.decode(KIND.example.encode(), KIND.type, content_type='yaml').object\n"
        "print(*(cause.message for cause in KIND.validate(KIND.prepare(policy))))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert INSTALL in done.stdout


def test_the_library_is_not_imported_before_an_expression_is_compiled() -> None:
    program = "import sys, app.registry.verbs.objects, app.api.app\nprint('cel_expr_python' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout == "False\n"

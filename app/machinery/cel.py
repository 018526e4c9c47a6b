"""CEL, the Common Expression Language, as Kubernetes' admission policies use it: compile and evaluate. Pure.

The language is that of `cel-expr-python`, Google's C++ implementation, which is imported when the first expression is compiled.
Here is what Kubernetes adds: quantities, and functions of lists and of regular expressions. A name that is not declared is an
error at the compilation. The runtime counts the iterations of all comprehensions of an expression, and gives up at 10,000;
what one iteration costs it does not bound, so whoever evaluates expressions of others bounds time and memory himself
(`app.registry.admission.policy_process`).

Decision: docs/decisions/0025-admission-policies-in-cel.md.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from functools import cache
from importlib.util import find_spec
from typing import Any

from app.machinery.quantity import parse

LONGEST = 4096  # characters of an expression; 15 ms to compile
_STATUS = re.compile(r"^INVALID_ARGUMENT: | \[INVALID_ARGUMENT\]$")
INSTALL = "CEL is not installed: pip install 'jobplane[policies]'"


@cache
def is_installed() -> bool:
    """Return whether expressions can be compiled here."""
    return find_spec("cel_expr_python") is not None


class CelError(Exception):
    """An expression that cannot be compiled, or that failed when it was evaluated."""

    @property
    def is_over_budget(self) -> bool:
        """Whether the runtime gave up, as too many iterations were needed."""
        return "Iteration budget exceeded" in str(self)


class Program:
    """A compiled expression."""

    def __init__(self, compiled: Any) -> None:
        self._compiled = compiled
        self.type = str(compiled.return_type().name())  # BOOL, STRING, DYN, ...

    def evaluate(self, variables: Mapping[str, Any]) -> Any:
        """Return the value as Python has it. Raises CelError."""
        try:
            value = self._compiled.eval(data=variables)
        except Exception as error:  # what the runtime cannot convert
            raise CelError(str(error)) from error
        if value.type().name() == "ERROR":
            raise CelError(str(value.value()))
        return value.plain_value()


@cache
def compile_expression(expression: str, names: frozenset[str]) -> Program:
    """Compile an expression in which these variables are known. Raises CelError with every fault and its place."""
    if len(expression) > LONGEST:
        raise CelError(f"must be no longer than {LONGEST} characters")
    try:
        return Program(_environment(names).compile(expression))
    except RuntimeError as error:
        raise CelError(_STATUS.sub("", str(error))) from error


@cache
def _environment(names: frozenset[str]) -> Any:
    try:
        from cel_expr_python import cel
        from cel_expr_python.ext import ext_bindings, ext_encoders, ext_math, ext_optional, ext_strings
    except ImportError as error:
        raise CelError(INSTALL) from error
    extensions = (
        ext_strings.ExtStrings(),
        ext_optional.ExtOptional(),
        ext_bindings.ExtBindings(),
        ext_math.ExtMath(),
        ext_encoders.ExtEncoders(),
        cel.CelExtension("kubernetes", list(_functions(cel))),
    )
    return cel.NewEnv(variables=dict.fromkeys(names, cel.Type.DYN), extensions=extensions)


# --- what Kubernetes adds to the language


def _functions(cel: Any) -> Iterable[Any]:
    """Declare functions as Kubernetes does. A quantity travels as the text of its exact value, so that equal ones are equal."""
    of = cel.Type
    dyn_list = of.List(of.DYN)
    table: tuple[tuple[str, Any, tuple[Any, ...], bool, Callable[..., Any]], ...] = (
        ("quantity", of.STRING, (of.STRING,), False, _quantity),
        ("isQuantity", of.BOOL, (of.STRING,), False, _is_quantity),
        ("isGreaterThan", of.BOOL, (of.STRING, of.STRING), True, lambda a, b: Fraction(a) > Fraction(b)),
        ("isLessThan", of.BOOL, (of.STRING, of.STRING), True, lambda a, b: Fraction(a) < Fraction(b)),
        ("compareTo", of.INT, (of.STRING, of.STRING), True, lambda a, b: _sign(Fraction(a) - Fraction(b))),
        ("sign", of.INT, (of.STRING,), True, lambda a: _sign(Fraction(a))),
        ("isInteger", of.BOOL, (of.STRING,), True, lambda a: Fraction(a).denominator == 1),
        ("asInteger", of.INT, (of.STRING,), True, _as_integer),
        ("asApproximateFloat", of.DOUBLE, (of.STRING,), True, lambda a: float(Fraction(a))),
        ("add", of.STRING, (of.STRING, of.STRING), True, lambda a, b: str(Fraction(a) + Fraction(b))),
        ("sub", of.STRING, (of.STRING, of.STRING), True, lambda a, b: str(Fraction(a) - Fraction(b))),
        ("sum", of.DYN, (dyn_list,), True, sum),
        ("min", of.DYN, (dyn_list,), True, min),
        ("max", of.DYN, (dyn_list,), True, max),
        ("isSorted", of.BOOL, (dyn_list,), True, lambda items: items == sorted(items)),
        ("indexOf", of.INT, (dyn_list, of.DYN), True, lambda items, item: items.index(item) if item in items else -1),
    )
    for name, returned, taken, is_member, implementation in table:
        overload = cel.Overload(f"kubernetes_{name}", returned, list(taken), is_member, implementation)
        yield cel.FunctionDecl(name, [overload])


def _quantity(text: str) -> str:
    return str(Fraction(parse(text)))


def _is_quantity(text: str) -> bool:
    try:
        parse(text)
    except ValueError:
        return False
    return True


def _sign(number: Fraction) -> int:
    return (number > 0) - (number < 0)


def _as_integer(text: str) -> int:
    number = Fraction(text)
    if number.denominator != 1:
        raise ValueError("cannot convert value to integer")
    return number.numerator

"""What fuzzers say: the words that our own code knows, and texts and numbers that have broken servers before."""

import ast
from collections.abc import Iterator
from functools import cache
from hashlib import sha512
from pathlib import Path
from random import Random
from typing import Any

import app.kinds
import app.machinery

_SOURCES = [Path(package.__file__).parent for package in (app.kinds, app.machinery) if package.__file__]


@cache
def known() -> tuple[str, ...]:
    """Return short texts in the source of our kinds: names of policies, operators, conditions, fields, finalizers."""
    return tuple(dict.fromkeys(_constants()))


def _constants() -> Iterator[str]:
    for path in sorted(path for folder in _SOURCES for path in folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and 0 < len(node.value) <= 40:
                yield node.value


NAMES = ("a", "b", "default", "a-b", "0", "a.b", "kube-system", "x" * 63)
_DENSE = "".join(sha512(bytes([n])).hexdigest() for n in range(40))  # as long as names get, and nothing compresses it
NASTY = (
    _DENSE,
    *("", " ", ".", "..", "/", "../..", "%2e%2e", "a/b", "A", "-a", "a-", "_", "a" * 64, "a" * 254, "a." * 126 + "a"),
    *("\n", "\t", "\x7f", "\x1b[31m", "\u0000", "\ud800", "\udfff", "\ufeff", "\u202e", "é", "🦆", "ﬀ", "İ", "ß"),
    *("٣", "²", "0", "-0", "-1", "1", "01", "1_000", "1e5", "1e999999999", "0x10", "9" * 400, "NaN", "Infinity", "null"),
    *("1Gi", "100m", "-1", "1.5", ".", "1e-99", "0.0000000001", "1Ki", "1ki", "1E", "1e", "+", "99999999999Ei", "5n"),
    *("2024-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999999Z", "2024-02-30T00:00:00Z"),
    *("9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59", "2024-01-01", "2024-01-01T24:00:00Z", "20240101T00Z"),
    *("2024-12-31T23:59:60Z", "2024-01-01T00:00:00.000000Z", "2024-01-01 00:00:00Z", "-0001-01-01T00:00:00Z"),
    *("* * * * *", "@every 1s", "0 0 30 2 *", "*/0 * * * *", "60 * * * *", "TZ=UTC * * * * *", "1-100000000 * * * *"),
    *("Europe/Berlin", "../../etc/passwd", "Local", "UTC\x00", "posixrules", "America", "/etc/localtime"),
    *("a=b", "a in (b", "!a", "a,b", "metadata.name=a", "0-9", "1,3-2", "0-99999999999", "1,,2", "-", "$(A)", "$((", "{}"),
    *("kubernetes.io/hostname", "a.b/c", "/c", "a/b/c", "batch.kubernetes.io/job-name", "v1", "batch/v1", "//", "v1/"),
    *("AAE=", "====", "AA\n==", "k:{}", "f:a", "v:", ".", "i:x", "system:masters", "system:node:a", "*", "::1"),
)  # fmt: skip
NUMBERS = (
    *(0, 1, -1, 2, 3, 10, 100, 255, 256, 1000, 65535, 65536, 100_000, 100_001, 86_400, 10**6, 10**9),
    *(2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**53, 2**62, 2**63 - 1, 2**63, -(2**63), 2**64, 10**30, 10**400),
    *(0.5, -1.5, 1e300, 1e-300, 1.0, -0.0),
)  # fmt: skip
FITTING = tuple(each for each in NUMBERS if isinstance(each, int) and -(2**31) <= each < 2**31)


def text(rng: Random) -> str:
    kind = rng.random()
    if kind < 0.45:
        return rng.choice(known())
    if kind < 0.65:
        return rng.choice(NAMES)
    return rng.choice(NASTY) if kind < 0.95 else rng.choice(NASTY) + rng.choice(known())


def anything(rng: Random, depth: int = 3) -> Any:
    """A value of no particular type."""
    match rng.randrange(8 if depth else 6):
        case 0:
            return None
        case 1:
            return rng.random() < 0.5
        case 2:
            return rng.choice(NUMBERS)
        case 3 | 4:
            return text(rng)
        case 5:
            return rng.choice(([], {}, [None], [[]], {"": None}))
        case 6:
            return [anything(rng, depth - 1) for _ in range(rng.randrange(4))]
    return {text(rng): anything(rng, depth - 1) for _ in range(rng.randrange(4))}

"""Feature gates: what Kubernetes keeps switched off, or lets one switch off, by the same names as there.

The command line reads `--feature-gates` with `parse`; the registry and the controllers are handed the result.
"""

from collections.abc import Iterator

WORKLOAD_WITH_JOB = "WorkloadWithJob"

KNOWN: dict[str, bool] = {WORKLOAD_WITH_JOB: False}
"""Every gate, and whether it is on if nothing is said."""

Features = frozenset[str]
"""The gates that are on."""

USUAL: Features = frozenset(name for name, on in KNOWN.items() if on)

_WORDS = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}


def parse(text: str) -> Features:
    """`A=true,B=false`, as Kubernetes' components take it. ValueError for what is none, or for a gate that there is not."""
    said = dict(map(_gate, filter(None, (part.strip() for part in text.split(",")))))
    return frozenset(name for name, on in (KNOWN | said).items() if on)


def _gate(text: str) -> tuple[str, bool]:
    name, equals, word = (part.strip() for part in text.partition("="))
    if not equals:
        raise ValueError(f"missing bool value for {name}")
    if name not in KNOWN:
        raise ValueError(f"unrecognized feature gate: {name} (known are: {', '.join(_listed())})")
    if word.lower() not in _WORDS:
        raise ValueError(f"invalid value of {name}={word}, it must be true or false")
    return name, _WORDS[word.lower()]


def _listed() -> Iterator[str]:
    """With what they are if nothing is said."""
    return (f"{name}={str(on).lower()}" for name, on in sorted(KNOWN.items()))

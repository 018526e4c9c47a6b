"""Prometheus' text format, version 0.0.4: families of samples as the lines of a scrape. `MetricsRegistry.render` calls it."""

from collections.abc import Iterable, Iterator
from math import inf

from app.metrics.instruments import Family, Sample

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_LABEL = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
_HELP = str.maketrans({"\\": r"\\", "\n": r"\n"})


def format_families(families: Iterable[Family]) -> str:
    """Return the text of a scrape. A name without samples has its help only: a reader sees that there is such a number."""
    return "".join(line for each in families for line in _lines(each))


def _lines(family: Family) -> Iterator[str]:
    yield f"# HELP {family.name} {family.help.translate(_HELP)}\n# TYPE {family.name} {family.type}\n"
    for sample in family.samples:
        yield f"{family.name}{sample.suffix}{_labels(sample)} {_number(sample.value)}\n"


def _labels(sample: Sample) -> str:
    if not sample.labels:
        return ""
    return "{" + ",".join(f'{name}="{value.translate(_LABEL)}"' for name, value in sample.labels) + "}"


def _number(value: float) -> str:
    """A whole number without its fraction: most are counts."""
    if value in (inf, -inf):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) else repr(float(value))

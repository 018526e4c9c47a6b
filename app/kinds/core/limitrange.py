"""The LimitRange kind: what each pod and container of a namespace gets by default, and may ask for at most and at least.

Pods are judged by it in `app.plans.admission.limit_ranger`.
"""

from collections.abc import Iterator
from datetime import datetime
from fractions import Fraction
from typing import Any

from msgspec.structs import replace

from app.kinds.core.quota_schema import LimitRange, LimitRangeItem, LimitRangeSpec
from app.machinery import name_validation
from app.machinery.base import Column, Kind, Quantity
from app.machinery.errors import Cause, duplicate, forbidden, invalid, required
from app.machinery.quantity import canonical, fault, parse
from app.machinery.resource_names import is_overcommit_allowed, validate_container_name, validate_name

__all__ = [
    "CLAIM",
    "CONTAINER",
    "KIND",
    "POD",
    "Amounts",
    "LimitRange",
    "LimitRangeItem",
    "LimitRangeSpec",
    "prepare",
    "row",
    "validate",
]


POD, CONTAINER, CLAIM = "Pod", "Container", "PersistentVolumeClaim"

Amounts = dict[str, Quantity]


def prepare(limit_range: LimitRange) -> LimitRange:
    return replace(limit_range, spec=LimitRangeSpec(limits=tuple(map(_fill_defaults, limit_range.spec.limits))))


def _fill_defaults(item: LimitRangeItem) -> LimitRangeItem:
    """For containers, what is missing follows from the rest: limits from the most, requests from limits or the least."""
    low, high = _canonical(item.min), _canonical(item.max)
    default, request = _canonical(item.default), _canonical(item.default_request)
    if item.type == CONTAINER:
        default = {**high, **default}
        request = {**low, **default, **request}
    ratio = _canonical(item.max_limit_request_ratio)
    return replace(item, min=low, max=high, default=default, default_request=request, max_limit_request_ratio=ratio)


def _canonical(amounts: Amounts) -> Amounts:
    return {name: each if fault(each) else canonical(each) for name, each in amounts.items()}


def validate(limit_range: LimitRange) -> list[Cause]:
    causes: list[Cause] = []
    types: set[str] = set()
    for index, item in enumerate(limit_range.spec.limits):
        path = f"spec.limits[{index}]"
        causes += _type(item.type, f"{path}.type")
        if item.type in types:
            causes.append(duplicate(f"{path}.type", item.type))
        types.add(item.type)
        causes += _item(item, path)
    return causes


def _type(type_: str, path: str) -> Iterator[Cause]:
    faults = name_validation.qualified_name(type_)
    for text in faults:
        yield invalid(path, type_, text)
    if not faults and "/" not in type_ and type_ not in (POD, CONTAINER, CLAIM):
        yield invalid(path, type_, "must be a standard limit type or fully qualified")


def _item(item: LimitRangeItem, path: str) -> Iterator[Cause]:
    tables = {"max": item.max, "min": item.min}
    defaults = {"default": item.default, "defaultRequest": item.default_request}
    if item.type == POD:
        for field, amounts in defaults.items():
            if amounts:
                yield forbidden(f"{path}.{field}", "may not be specified when `type` is 'Pod'")
    else:
        tables |= defaults
    tables["maxLimitRequestRatio"] = item.max_limit_request_ratio
    yield from _names(item.type, tables, path)
    if item.type == CLAIM and "storage" not in item.min and "storage" not in item.max:
        text = "either minimum or maximum storage value is required, but neither was provided"
        yield required(f"{path}.limits", text)
    if not any(fault(amount) for amounts in tables.values() for amount in amounts.values()):
        for name in dict.fromkeys(name for amounts in tables.values() for name in amounts):
            known = {field: amounts[name] for field, amounts in tables.items() if name in amounts}
            yield from _order(name, known, path)
            yield from _ratio(name, known, path)


def _names(type_: str, tables: dict[str, Amounts], path: str) -> Iterator[Cause]:
    check = validate_container_name if type_ in (POD, CONTAINER) else validate_name
    for field, amounts in tables.items():
        for name, amount in amounts.items():
            yield from check(name, f"{path}.{field}[{name}]")
            if text := fault(amount):
                yield invalid(f"{path}.{field}[{name}]", amount, text)


# The smaller field, the larger one, the field that is to blame, the value that is shown, and how both are called.
_ORDER = (
    ("min", "max", "min", "min", "min value", "max value"),
    ("min", "defaultRequest", "defaultRequest", "defaultRequest", "min value", "default request value"),
    ("defaultRequest", "max", "defaultRequest", "defaultRequest", "default request value", "max value"),
    ("defaultRequest", "default", "defaultRequest", "defaultRequest", "default request value", "default limit value"),
    ("min", "default", "default", "min", "min value", "default value"),
    ("default", "max", "default", "max", "default value", "max value"),
)


def _order(name: str, known: Amounts, path: str) -> Iterator[Cause]:
    for low, high, blamed, value, low_text, high_text in _ORDER:
        if low in known and high in known and parse(known[low]) > parse(known[high]):
            text = f"{low_text} {known[low]} is greater than {high_text} {known[high]}"
            yield invalid(f"{path}.{blamed}[{name}]", known[value], text)
    if "default" in known and "defaultRequest" in known and not is_overcommit_allowed(name):
        limit, request = known["default"], known["defaultRequest"]
        if parse(limit) != parse(request):
            text = f"default value {limit} must equal to defaultRequest value {request} in {name}"
            yield invalid(f"{path}.defaultRequest[{name}]", request, text)


def _ratio(name: str, known: Amounts, path: str) -> Iterator[Cause]:
    ratio = known.get("maxLimitRequestRatio")
    if ratio is None:
        return
    field = f"{path}.maxLimitRequestRatio[{name}]"
    if parse(ratio) < 1:
        yield invalid(field, ratio, f"ratio {ratio} is less than 1")
    low, high = parse(known.get("min", 0)), parse(known.get("max", 0))
    if "max" in known and low and parse(ratio) > Fraction(high, low):
        yield invalid(field, ratio, f"ratio {ratio} is greater than max/min = {float(high / low):f}")


def row(limit_range: LimitRange, _: datetime) -> list[Any]:
    meta = limit_range.metadata
    created = meta.creation_timestamp
    return [meta.name, created.strftime("%Y-%m-%dT%H:%M:%SZ") if created else "<unknown>"]


KIND = Kind(
    type=LimitRange,
    group="",
    version="v1",
    plural="limitranges",
    short_names=("limits",),
    prepare=prepare,
    validate=validate,
    columns=(
        Column(name="Name", format="name", description="Name of the limit range."),
        Column(name="Created At", description="When the limit range was created."),
    ),
    row=row,
    example="""\
apiVersion: v1
kind: LimitRange
metadata:
  name: sizes
spec:
  limits:
  - type: Container
    default:
      cpu: 500m
      memory: 256Mi
    defaultRequest:
      cpu: 250m
    max:
      cpu: "2"
    maxLimitRequestRatio:
      memory: "4"
  - type: Pod
    max:
      memory: 4Gi
""",
)

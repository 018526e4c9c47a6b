"""Struct: the base of every part of an object, and the types and marks of its fields.

Generated schemas are made of it; everybody else imports it from `base`. Structs are frozen, named in
snake_case here and in Kubernetes' camelCase on the wire, and leave out what equals its default.
"""

from datetime import datetime
from functools import cache
from typing import Annotated, Any, dataclass_transform

import msgspec
from msgspec import Meta

_SPELLED = {
    "ip": "IP",
    "ips": "IPs",
    "pid": "PID",
    "ipc": "IPC",
    "id": "ID",
    "uid": "UID",
    "uuid": "UUID",
    "uri": "URI",
    "cidr": "CIDR",
    "cidrs": "CIDRs",
    "fqdn": "FQDN",
    "wwns": "WWNs",
}


def wire_name(name: str) -> str:
    """The JSON name of a field: `host_ip` is `hostIP`, `pod_ips` is `podIPs`; a trailing underscore is dropped."""
    first, *rest = name.rstrip("_").split("_")
    return first + "".join(_SPELLED.get(word, word.capitalize()) for word in rest)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class _Frozen(msgspec.StructMeta):
    """Tells type checkers that what inherits from `Struct` is frozen, as it is."""


class Struct(msgspec.Struct, metaclass=_Frozen, frozen=True, omit_defaults=True, rename=wire_name, gc=False):
    """The base of every part of an object."""


def at(number: int, description: str = "", **more: Any) -> Meta:
    """A field's protobuf number and what it means (shown by `kubectl explain`). `more` goes to `extra`: patch_key=..."""
    return Meta(description=description or None, extra={"pb": number, **more} if more else _numbered(number))


@cache
def _numbered(number: int) -> dict[str, Any]:
    return {"pb": number}  # one for hundreds of fields, which a node's agent would hold each by itself


Int32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Time = Annotated[datetime, Meta(tz=True)]  # whole seconds on the wire
MicroTime = Annotated[
    str, Meta(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$")
]  # six decimals: a Go client insists
Quantity = str | int | float
IntOrString = int | str
Opaque = dict[str, Any]  # a part that is accepted and kept, and that nobody here looks into


TOLD: str = msgspec.field(default_factory=lambda: "")  # a field that is there even if empty: clients insist on it

"""The Namespace kind."""

from typing import Annotated

import msgspec

from app.kinds.base import (
    Condition,
    Object,
    Struct,
    at,
)


class NamespaceSpec(Struct):
    """TODO-DOC"""

    finalizers: Annotated[tuple[str, ...], at(1)] = ()


class NamespaceStatus(Struct):
    """TODO-DOC"""

    phase: Annotated[str, at(1)] = ""
    conditions: Annotated[tuple[Condition, ...], at(2)] = ()


class Namespace(Object):
    """TODO-DOC"""

    spec: Annotated[NamespaceSpec, at(2)] = msgspec.field(default_factory=NamespaceSpec)
    status: Annotated[NamespaceStatus, at(3)] = msgspec.field(default_factory=NamespaceStatus)

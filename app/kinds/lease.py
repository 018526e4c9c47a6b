"""The Lease kind (coordination.k8s.io/v1)."""

from typing import Annotated

import msgspec

from app.kinds.base import (
    Int32,
    MicroTime,
    Object,
    Struct,
    at,
)


class LeaseSpec(Struct):
    """TODO-DOC"""

    holder_identity: Annotated[str, at(1)] = ""
    lease_duration_seconds: Annotated[Int32 | None, at(2)] = None
    acquire_time: Annotated[MicroTime | None, at(3)] = None
    renew_time: Annotated[MicroTime | None, at(4)] = None
    lease_transitions: Annotated[Int32 | None, at(5)] = None
    strategy: Annotated[str, at(6)] = ""
    preferred_holder: Annotated[str, at(7)] = ""


class Lease(Object):
    """TODO-DOC"""

    spec: Annotated[LeaseSpec, at(2)] = msgspec.field(default_factory=LeaseSpec)

"""The Lease kind (coordination.k8s.io/v1)."""

from datetime import datetime
from typing import Annotated, Any

import msgspec

from app.machinery.base import (
    Column,
    Int32,
    Kind,
    MicroTime,
    Object,
    Struct,
    at,
)
from app.machinery.durations import age
from app.machinery.errors import Cause, invalid
from app.machinery.metadata_validation import NEGATIVE

NODE_NAMESPACE = "kube-node-lease"  # where each node has the lease that bears its name


class LeaseSpec(Struct):
    """Who holds the lease, and until when it counts."""

    holder_identity: Annotated[str, at(1, "Who holds the lease; empty if nobody does.")] = ""
    lease_duration_seconds: Annotated[
        Int32 | None, at(2, "How long after renewTime others must wait before they take the lease.")
    ] = None
    acquire_time: Annotated[MicroTime | None, at(3, "When the holder got the lease.")] = None
    renew_time: Annotated[MicroTime | None, at(4, "When the holder last said that it is still there.")] = None
    lease_transitions: Annotated[Int32 | None, at(5, "How often the lease has changed hands.")] = None
    strategy: Annotated[str, at(6, "How the next holder is chosen, if holders are elected in common.")] = ""
    preferred_holder: Annotated[str, at(7, "Who the holder should hand over to; needs strategy.")] = ""


class Lease(Object):
    """A claim that has to be renewed: nodes prove with it that they live, leaders that they lead."""

    spec: Annotated[LeaseSpec, at(2, "Who holds the lease, and until when it counts.")] = msgspec.field(
        default_factory=LeaseSpec
    )


def validate(lease: Lease) -> list[Cause]:
    spec, causes = lease.spec, []
    if spec.lease_duration_seconds is not None and spec.lease_duration_seconds <= 0:
        causes.append(invalid("spec.leaseDurationSeconds", spec.lease_duration_seconds, "must be greater than 0"))
    if spec.lease_transitions is not None and spec.lease_transitions < 0:
        causes.append(invalid("spec.leaseTransitions", spec.lease_transitions, NEGATIVE))
    return causes


def row(lease: Lease, now: datetime) -> list[Any]:
    meta = lease.metadata
    return [meta.name, lease.spec.holder_identity, age(meta.creation_timestamp, now)]


KIND = Kind(
    type=Lease,
    group="coordination.k8s.io",
    version="v1",
    plural="leases",
    validate=validate,
    tracked=False,
    columns=(
        Column(name="Name", format="name", description="Name of the lease."),
        Column(name="Holder", description="Who holds the lease."),
        Column(name="Age", description="Time since the lease was created."),
    ),
    row=row,
    example="""\
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata:
  name: worker-1
  namespace: kube-node-lease
spec:
  holderIdentity: worker-1
  leaseDurationSeconds: 40
  renewTime: "2025-01-02T03:04:05.123456Z"
""",
)

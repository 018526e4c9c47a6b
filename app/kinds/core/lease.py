"""The Lease kind (coordination.k8s.io/v1)."""

from datetime import datetime
from typing import Any

from app.kinds.core.lease_schema import Lease, LeaseSpec
from app.machinery.base import (
    Column,
    Kind,
)
from app.machinery.durations import age
from app.machinery.errors import Cause, invalid
from app.machinery.meta.metadata_validation import NEGATIVE

__all__ = ["KIND", "NODE_NAMESPACE", "Lease", "LeaseSpec", "row", "validate"]


NODE_NAMESPACE = "kube-node-lease"  # where each node has the lease that bears its name


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

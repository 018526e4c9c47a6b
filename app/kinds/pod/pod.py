"""The Pod kind: containers that run together on one node, once.

The structs live in `app.kinds.pod.pod_schema`; import them, and the questions of `app.kinds.pod.pod_state`, from here.
"""

from datetime import datetime

from msgspec.structs import replace

from app.kinds.pod.pod_columns import COLUMNS, row
from app.kinds.pod.pod_defaults import GRACE_SECONDS, default_pod
from app.kinds.pod.pod_resources import qos_class, requests
from app.kinds.pod.pod_schema import (
    HostAlias,
    HostIP,
    Pod,
    PodDNSConfig,
    PodDNSConfigOption,
    PodIP,
    PodOS,
    PodReadinessGate,
    PodResourceClaim,
    PodSchedulingGate,
    PodSchedulingGroup,
    PodSpec,
    PodStatus,
    PodTemplateSpec,
)
from app.kinds.pod.pod_state import is_active, is_ready, is_terminal
from app.kinds.pod.pod_validation import validate_pod, validate_pod_status, validate_pod_update
from app.kinds.pod.pod_warnings import warnings_of_spec
from app.machinery.base import Condition, Kind
from app.machinery.meta.conditions import condition

__all__ = [
    "KIND",
    "HostAlias",
    "HostIP",
    "Pod",
    "PodDNSConfig",
    "PodDNSConfigOption",
    "PodIP",
    "PodOS",
    "PodReadinessGate",
    "PodResourceClaim",
    "PodSchedulingGate",
    "PodSchedulingGroup",
    "PodSpec",
    "PodStatus",
    "PodTemplateSpec",
    "condition",
    "is_active",
    "is_ready",
    "is_terminal",
    "qos_class",
    "requests",
    "warnings_of_spec",
]

GATED = "Scheduling is blocked due to non-empty scheduling gates"


def on_create(pod: Pod, now: datetime) -> Pod:
    """A client does not get to say how a pod fares."""
    gated = Condition(type="PodScheduled", status="False", reason="SchedulingGated", message=GATED)
    status = PodStatus(
        phase="Pending",
        qos_class=qos_class(pod.spec),
        conditions=(replace(gated, last_transition_time=now),) if pod.spec.scheduling_gates else (),
    )
    return replace(pod, metadata=replace(pod.metadata, generation=1), status=status)


def on_update(new: Pod, old: Pod) -> Pod:
    changed = new.spec != old.spec
    metadata = replace(new.metadata, generation=old.metadata.generation + changed)
    return replace(new, metadata=metadata, status=old.status)


def on_status(new: Pod, old: Pod) -> Pod:
    """Old kubelets say nothing of the quality of service."""
    quality = new.status.qos_class or old.status.qos_class
    return replace(new, status=replace(new.status, qos_class=quality))


def grace(pod: Pod) -> int:
    """Seconds to stop in. What never started, or has ended, needs none."""
    if not pod.spec.node_name or is_terminal(pod):
        return 0
    seconds = pod.spec.termination_grace_period_seconds
    if seconds is None:
        return GRACE_SECONDS
    return seconds if seconds >= 0 else 1


def warnings(new: Pod, old: Pod | None) -> list[str]:
    """Of new pods only, as in Kubernetes: nothing that can be changed later is without effect."""
    return [] if old else warnings_of_spec(new.spec, "spec")


EXAMPLE = """\
apiVersion: v1
kind: Pod
metadata:
  name: hello
  labels:
    app: hello
spec:
  restartPolicy: Never
  containers:
  - name: main
    image: busybox:1.37
    command: [sh, -c, 'echo "Hello from $POD_NAME" > /scratch/out && cat /scratch/out']
    env:
    - name: POD_NAME
      valueFrom:
        fieldRef:
          fieldPath: metadata.name
    resources:
      requests:
        cpu: 100m
        memory: 32Mi
    volumeMounts:
    - name: scratch
      mountPath: /scratch
  volumes:
  - name: scratch
    emptyDir: {}
"""

KIND = Kind(
    type=Pod,
    group="",
    version="v1",
    plural="pods",
    short_names=("po",),
    categories=("all",),
    has_status=True,
    prepare=default_pod,
    on_create=on_create,
    on_update=on_update,
    on_status=on_status,
    validate=validate_pod,
    validate_update=validate_pod_update,
    validate_status=validate_pod_status,
    warnings=warnings,
    columns=COLUMNS,
    row=row,
    fields={
        "spec.nodeName": lambda pod: pod.spec.node_name,
        "spec.restartPolicy": lambda pod: pod.spec.restart_policy,
        "spec.schedulerName": lambda pod: pod.spec.scheduler_name,
        "spec.serviceAccountName": lambda pod: pod.spec.service_account_name,
        "spec.hostNetwork": lambda pod: "true" if pod.spec.host_network else "false",
        "status.phase": lambda pod: pod.status.phase,
        "status.podIP": lambda pod: pod.status.pod_ips[0].ip if pod.status.pod_ips else pod.status.pod_ip,
        "status.podIPs": lambda pod: ",".join(each.ip for each in pod.status.pod_ips),
        "status.nominatedNodeName": lambda pod: pod.status.nominated_node_name,
    },
    grace=grace,
    returns_deleted=True,
    example=EXAMPLE,
)

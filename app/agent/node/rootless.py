"""What the containers of this node cannot have, as its agent is an ordinary user or lacks cgroups: said by the node's labels and
conditions, and to each pod that asks for it. Called by `agent` and by the checks of containers.

Of runtimes with images only: the process runtime says by its isolation what it keeps.
"""

import os
from collections.abc import Iterator, Sequence

from app.agent.pods.environment import ContainerConfigError
from app.kinds.core.node import NodeCondition
from app.runtimes.base import ResourceLimits, RuntimeInfo

ROOTLESS, LIMITS = "jobplane.dev/rootless", "jobplane.dev/limits"  # labels
CONDITION = "jobplane.dev/ResourceLimits"
AS_ROOT = "the agent is an ordinary user. Use a node whose agent is root, which has no label jobplane.dev/rootless"


def labels(info: RuntimeInfo) -> dict[str, str]:
    """Labels of the node, by which pods can choose."""
    found = {ROOTLESS: "true"} if info.rootless else {}
    return found | ({LIMITS: "none"} if info.refuses_limits else {})


def condition(info: RuntimeInfo) -> NodeCondition | None:
    """The node's condition; None if all limits hold."""
    if not info.refuses_limits:
        return None
    message = f"containers with limits of CPU or memory are refused: {info.refuses_limits}"
    return NodeCondition(type=CONDITION, status="False", reason="NoCgroups", message=message)


def check(
    container: str, limits: ResourceLimits, devices: Sequence[str], *, privileged: bool, info: RuntimeInfo
) -> None:
    """Raises ContainerConfigError for the first thing that it cannot have."""
    for refusal in _refusals(limits, devices, privileged, info):
        raise ContainerConfigError(f"container {container}: {refusal}")


def _refusals(limits: ResourceLimits, devices: Sequence[str], privileged: bool, info: RuntimeInfo) -> Iterator[str]:
    if info.refuses_limits and (limits.cpu is not None or limits.memory is not None):
        yield f"this node cannot keep limits of CPU and memory: {info.refuses_limits}"
    if not info.rootless:
        return
    if privileged:
        yield f"privileged containers are not possible: {AS_ROOT}"
    for each in devices:
        if not os.access(each, os.R_OK | os.W_OK):
            yield f"device {each} is closed to user {os.geteuid()}: {AS_ROOT}"

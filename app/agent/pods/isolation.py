"""Isolation of pods whose namespace is not privileged: the rights of their containers, and what the node says of it.

The process runtime isolates by users and bubblewrap (`restrict`). Engines isolate by themselves, unless a pod asks for the node:
a namespace whose level neither a label nor a setting says gets no more than baseline (`check_privileges`).
"""

from dataclasses import replace

from app.agent.pods.environment import ContainerConfigError
from app.client.protocol import NamespaceLevel
from app.kinds.pod.pod import Pod
from app.plans.admission.pod_security.evaluation import violations
from app.plans.admission.pod_security.namespace_policy import BASELINE, PREFIX, LevelVersion
from app.runtimes.base import CreateError, Isolation, RuntimeInfo, Sandbox, Security
from app.structured_logging import Logger

LABEL = "jobplane.dev/pod-isolation"
_MEANING: dict[Isolation, str] = {
    "user-and-sandbox": "run as a user of their namespace, without a view of the agent and other pods",
    "user": "run as a user of their namespace, but see all processes and share /tmp, as bubblewrap is not usable",
    "sandbox": "run as the agent's own user, without a view of its files and other pods: run the agent as root for more",
    "none": "are refused: install bubblewrap, or run the agent as root with setpriv (util-linux)",
}

logger = Logger(__name__)


def isolation_label(isolation: Isolation | None) -> dict[str, str]:
    """The node's label, by which pods can choose."""
    return {LABEL: isolation} if isolation else {}


def log_isolation(info: RuntimeInfo) -> None:
    if info.isolation:
        logger.info("pods are isolated in namespaces that are not privileged", reason=_MEANING[info.isolation])


def check_privileges(pod: Pod, level: NamespaceLevel) -> None:
    """Refuse a pod that asks an engine for more than baseline if its namespace has no level of its own. Raises CreateError.

    Where a label or a setting says what it may, admission has refused the rest.
    """
    if not level.is_default:
        return
    at = LevelVersion(BASELINE)
    if found := violations(at, pod.metadata.annotations, pod.spec):
        namespace = pod.metadata.namespace
        raise CreateError(
            f'pod violates PodSecurity "{at}": {", ".join(map(str, found))}. On nodes with container engines this needs a '
            f"privileged namespace: kubectl label namespace {namespace} {PREFIX}enforce=privileged"
        )


def restrict(wanted: Security, sandbox: Sandbox, container: str) -> Security:
    """Raises ContainerConfigError if the container asks for more. Fields that name the namespace's own user are fine."""
    if not sandbox.is_isolated:
        return wanted
    if wanted.privileged or wanted.add:
        raise ContainerConfigError(
            f"container {container}: privileged and capabilities.add need a privileged namespace on this node's runtime"
        )
    if sandbox.user is None:
        return replace(wanted, drop=("ALL",), no_new_privileges=True)
    fields = {"runAsUser": (wanted.user,), "runAsGroup": (wanted.group,), "fsGroup, supplementalGroups": wanted.groups}
    for name, ids in fields.items():
        if set(ids) - {None, sandbox.user}:
            raise ContainerConfigError(
                f"container {container}: {name} may only be {sandbox.user}, the user of its namespace on this node: leave it out"
            )
    return replace(wanted, user=sandbox.user, group=sandbox.user, groups=(), drop=("ALL",), no_new_privileges=True)

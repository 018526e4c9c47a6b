"""Pod events in the kubelet's words. Pure; plans and the agent create them, the agent sends them."""

from collections.abc import Sequence
from typing import NamedTuple

from app.kinds.pod.container import Container
from app.kinds.pod.pod import Pod
from app.machinery.meta.owner_references import controller_uid
from app.plans.kubelet.image_pulls import NO_IMAGE


class Note(NamedTuple):
    """An event. `path`: of the part of the pod it is about. `once`: if set, only one event is sent for this text.

    owner: UID of the pod's controller, if one event stands for all of its pods.
    """

    type: str
    reason: str
    message: str
    path: str = ""
    once: str = ""
    owner: str = ""


def path_of(pod: Pod, name: str) -> str:
    """The path of a container, as in involvedObject.fieldPath."""
    is_app = any(each.name == name for each in pod.spec.containers)
    return f"spec.{'containers' if is_app else 'initContainers'}{{{name}}}"


def full_name(pod: Pod) -> str:
    meta = pod.metadata
    return f"{meta.name}_{meta.namespace}({meta.uid})"


# Containers


def created(pod: Pod, name: str) -> Note:
    return Note("Normal", "Created", f"Created container: {name}", path_of(pod, name))


def started(pod: Pod, name: str) -> Note:
    return Note("Normal", "Started", f"Started container {name}", path_of(pod, name))


def failed(pod: Pod, name: str, why: str) -> Note:
    """The container could not be set up, created or started."""
    return Note("Warning", "Failed", f"Error: {why}", path_of(pod, name))


def killing(pod: Pod, name: str, why: str) -> Note:
    return Note("Normal", "Killing", why or f"Stopping container {name}", path_of(pod, name))


def backing_off(pod: Pod, name: str, attempt: int) -> Note:
    text = f"Back-off restarting failed container {name} in pod {full_name(pod)}"
    return Note("Warning", "BackOff", text, path_of(pod, name), f"{name}/{attempt}")


# Images


def pulling(pod: Pod, container: Container) -> Note:
    return Note("Normal", "Pulling", f'Pulling image "{container.image}"', path_of(pod, container.name))


def present(pod: Pod, container: Container) -> Note:
    text = f'Container image "{container.image}" already present on machine'
    return Note("Normal", "Pulled", text, path_of(pod, container.name))


def pulled(pod: Pod, container: Container, took: str, waited: str, size: int) -> Note:
    text = f'Successfully pulled image "{container.image}" in {took} ({waited} including waiting).'
    return Note("Normal", "Pulled", f"{text} Image size: {size} bytes.", path_of(pod, container.name))


def not_pulled(pod: Pod, container: Container, why: str) -> Note:
    return Note("Warning", "Failed", f'Failed to pull image "{container.image}": {why}', path_of(pod, container.name))


def pull_backing_off(pod: Pod, container: Container) -> Note:
    return Note("Normal", "BackOff", f'Back-off pulling image "{container.image}"', path_of(pod, container.name))


def never_pulled(pod: Pod, container: Container, why: str) -> Note:
    return Note("Warning", "ErrImageNeverPull", why, path_of(pod, container.name))


def misnamed(pod: Pod, container: Container, why: str) -> Note:
    return Note("Warning", "InspectFailed", why, path_of(pod, container.name))


def without_secrets(names: str) -> Note:
    text = f"Unable to retrieve some image pull secrets ({names}); attempting to pull the image may not succeed."
    return Note("Warning", "FailedToRetrieveImagePullSecret", text)


# The pod


def without_sandbox(why: str) -> Note:
    return Note("Warning", "FailedCreatePodSandBox", f"Failed to create pod sandbox: {why}")


def sandbox_changed() -> Note:
    return Note("Normal", "SandboxChanged", "Pod sandbox changed, it will be killed and re-created.")


def without_volume(name: str, why: str) -> Note:
    return Note("Warning", "FailedMount", f'MountVolume.SetUp failed for volume "{name}" : {why}')


def overdue(reason: str, why: str) -> Note:
    return Note("Normal", reason, why, "", "deadline")


def evicted(reason: str, why: str) -> Note:
    """The pod was evicted by its node."""
    return Note("Warning", reason, why)


# Probes and hooks


def unhealthy(pod: Pod, name: str, why: str) -> Note:
    return Note("Warning", "Unhealthy", why, path_of(pod, name))


def probe_warning(pod: Pod, name: str, why: str) -> Note:
    return Note("Warning", "ProbeWarning", why, path_of(pod, name))


def hook_failed(pod: Pod, name: str, hook: str) -> Note:
    """Without the hook's output, which may be secret."""
    return Note("Warning", f"Failed{hook}Hook", f"{hook}Hook failed", path_of(pod, name))


def unenforced(pod: Pod, name: str, fields: Sequence[str]) -> Note:
    """Not in Kubernetes, whose nodes enforce all of them."""
    text = f"This node's runtime does not enforce {', '.join(fields)} of container {name}"
    return Note("Warning", "SecurityNotEnforced", text, path_of(pod, name), name)


def image_not_used(pod: Pod) -> Note | None:
    """Not in Kubernetes. One event for all pods of a Job, as they share a template, whatever nodes they are on."""
    images = sorted({each.image for each in (*pod.spec.init_containers, *pod.spec.containers)} - {NO_IMAGE})
    if not images:
        return None
    text = (
        f"The process runtime runs programs of the host: {', '.join(images)} is only recorded, not pulled or run. "
        "To run images, start the node's agent with --runtime oci, cri or docker"
    )
    return Note("Warning", "ImageNotUsed", text, once="image", owner=controller_uid(pod) or "")

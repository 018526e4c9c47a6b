"""Options of exec, attach, port-forward, logs and the proxy: PodExecOptions and others for OpenAPI, and the container.

`pod_streams` and `logs` read the query themselves, and call `resolve_container`.
"""

from typing import Annotated

from msgspec import Meta

from app.kinds.pod.pod import Pod
from app.machinery.base import Struct
from app.machinery.errors import bad_request


class PodAttachOptions(Struct):
    """Which of a container's streams, and of which container."""

    container: Annotated[str, Meta(description="Which container; needed if the pod has several.")] = ""
    stdin: Annotated[bool, Meta(description="Send to standard input.")] = False
    stdout: Annotated[bool, Meta(description="Receive standard output.")] = False
    stderr: Annotated[bool, Meta(description="Receive standard error.")] = False
    tty: Annotated[bool, Meta(description="There is a terminal.")] = False


class PodExecOptions(PodAttachOptions):
    """What to execute where, and with which streams."""

    command: Annotated[tuple[str, ...], Meta(description="What to execute, word by word; no shell is involved.")] = ()


class PodPortForwardOptions(Struct):
    """Ports to connect to. SPDY names them in its streams instead."""

    ports: Annotated[tuple[int, ...], Meta(description="Ports; needed with WebSockets.")] = ()


class PodProxyOptions(Struct):
    """The query of pods/proxy."""

    path: Annotated[str, Meta(description="Ignored: the path is what follows proxy in the path of the request.")] = ""


class ServiceProxyOptions(PodProxyOptions):
    """The query of services/proxy."""


def resolve_container(pod: Pod, asked: str) -> str:
    """Return the requested container, or the only one of the pod. 400 with the text of Kubernetes' core/pod/strategy.go."""
    names = [each.name for each in (*pod.spec.init_containers, *pod.spec.containers)]
    if asked:
        if asked not in names:
            raise bad_request(f"container {asked} is not valid for pod {pod.metadata.name}")
        return asked
    if len(pod.spec.containers) == 1:
        return pod.spec.containers[0].name
    raise bad_request(
        f"a container name must be specified for pod {pod.metadata.name}, choose one of: [{' '.join(names)}]"
    )

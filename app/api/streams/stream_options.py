"""Query parameters of exec, attach and port-forward, for the OpenAPI documents. `pod_streams` reads the parameters themselves."""

from typing import Annotated

from msgspec import Meta

from app.machinery.base import Struct


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

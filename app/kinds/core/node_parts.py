"""Parts of a node that agents of Kubernetes report, or once did: kept as they are sent. For `app.kinds.core.node`."""

from typing import Annotated

import msgspec

from app.machinery.base import TOLD, Int32, Int64, Struct, at


class ConfigMapNodeConfigSource(Struct):
    """Settings of an agent in a ConfigMap; obsolete."""

    namespace: Annotated[str, at(1, "Its namespace.", required=True)] = TOLD
    name: Annotated[str, at(2, "Its name.", required=True)] = TOLD
    uid: Annotated[str, at(3, "Its UID.")] = ""
    resource_version: Annotated[str, at(4, "Its version.")] = ""
    kubelet_config_key: Annotated[str, at(5, "Key with the settings.", required=True)] = TOLD


class NodeConfigSource(Struct):
    """Where an agent has its settings from; obsolete."""

    config_map: Annotated[ConfigMapNodeConfigSource | None, at(2, "ConfigMap with the settings.")] = None


class NodeConfigStatus(Struct):
    """Which settings an agent uses; obsolete."""

    assigned: Annotated[NodeConfigSource | None, at(1, "What is to be used.")] = None
    active: Annotated[NodeConfigSource | None, at(2, "What is in use.")] = None
    last_known_good: Annotated[NodeConfigSource | None, at(3, "What is fallen back on.")] = None
    error: Annotated[str, at(4, "What is wrong with it.")] = ""


class DaemonEndpoint(Struct):
    """A port of the node."""

    port: Annotated[Int32, at(1, "The port.", required=True)] = msgspec.field(default_factory=lambda: 0, name="Port")


class NodeDaemonEndpoints(Struct):
    """Ports that the agent listens on."""

    kubelet_endpoint: Annotated[DaemonEndpoint | None, at(1, "Where the agent listens.")] = None


class NodeSwapStatus(Struct):
    """Swap space of a node."""

    capacity: Annotated[Int64 | None, at(1, "Bytes of swap space.")] = None


class AttachedVolume(Struct):
    """A volume that is attached to a node."""

    name: Annotated[str, at(1, "Its name.", required=True)] = TOLD
    device_path: Annotated[str, at(2, "Path of the device.", required=True)] = TOLD


class NodeRuntimeHandlerFeatures(Struct):
    """What a runtime handler can do."""

    recursive_read_only_mounts: Annotated[bool | None, at(1, "Whether mounts can be read-only all the way down.")] = (
        None
    )
    user_namespaces: Annotated[bool | None, at(2, "Whether pods can have user namespaces.")] = None


class NodeRuntimeHandler(Struct):
    """A way in which the runtime can run a pod."""

    name: Annotated[str, at(1, "Its name.")] = ""
    features: Annotated[NodeRuntimeHandlerFeatures | None, at(2, "What it can do.")] = None


class NodeFeatures(Struct):
    """What the runtime can do."""

    supplemental_groups_policy: Annotated[
        bool | None, at(1, "Whether the policies for supplemental groups are honoured.")
    ] = None

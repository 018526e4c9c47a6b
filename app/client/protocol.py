"""Protocol between agents and the API: paths, bodies and answers under /apis/agents.jobplane.dev/v1, declared once for both ends.

Agents send reports (`StatusReports`, `LogPieces`, `UsageReports`), each answered item by item, and join by `JoinRequest`. Other
fields than these are ignored, and what equals its default is left out.

A call is an exec, an attach, or one connection to a port. The API announces it on a stream that the agent keeps open
(`CallNotice`), and the agent opens a WebSocket for it. Messages start with the number of a channel, as in Kubernetes' remote
command protocol; END and a number end a channel. On CONTROL, lines of JSON: first the API's `CallRequest`, then the agent's
`CallReply`s.
"""

from collections.abc import Collection
from typing import Annotated

import msgspec

from app.kinds.pod.pod import PodStatus
from app.machinery.base import Int32, Int64, Struct, Time, at

GROUP = "agents.jobplane.dev"
BASE = f"/apis/{GROUP}/v1"
NODES = f"{BASE}/nodes"
CA, JOIN, JOIN_TOKENS, TOKENS, CREDENTIAL, CREDENTIALS, DATA_KEYS = (
    f"{BASE}/{each}" for each in ("ca", "join", "jointokens", "tokens", "credential", "credentials", "datakeys")
)
CERTIFICATE_REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
CERTIFICATE_REQUEST_PREFIX = "node-csr-"  # of the names of agents' requests; the node and something unique follow
CERTIFICATE_REQUIRED = (
    "ClientCertificateRequired"  # reason of a 403: the agent's token is good, and its certificate is missing
)
SIGNIN, SIGNIN_CODES = "/ui/signin", "/ui/codes"
WITH_LEVELS = "withNamespaceLevels"  # parameter of an agent's watch of its pods: see `NamespaceLevel`
ALL_NODES = "-"  # in the place of a node: all for which the token speaks
STDIN, STDOUT, STDERR, CONTROL, RESIZE, END = 0, 1, 2, 3, 4, 255


def node_segment(nodes: Collection[str]) -> str:
    """Node in the path of a request that concerns these."""
    return next(iter(nodes)) if len(nodes) == 1 else ALL_NODES


def statuses_path(node: str) -> str:
    return f"{NODES}/{node}/statuses"


def logs_path(node: str) -> str:
    return f"{NODES}/{node}/logs"


def usage_path(node: str) -> str:
    return f"{NODES}/{node}/usage"


def removed_volumes_path(node: str) -> str:
    return f"{NODES}/{node}/removed-volumes"


def calls_path(node: str, call: str = "") -> str:
    """Without a call's id: of the stream of notices."""
    return f"{NODES}/{node}/calls/{call}" if call else f"{NODES}/{node}/calls"


def namespace_path(node: str, namespace: str) -> str:
    """Of the Pod Security level of a namespace."""
    return f"{NODES}/{node}/namespaces/{namespace}"


def service_path(node: str, namespace: str, name: str) -> str:
    """Of what DNS tells of a Service."""
    return f"{NODES}/{node}/services/{namespace}/{name}"


def address_path(node: str, address: str) -> str:
    """Of the names of an address."""
    return f"{NODES}/{node}/addresses/{address}"


def network_path(node: str) -> str:
    """Of the pod network, as one node needs it."""
    return f"{NODES}/{node}/network"


class NamespaceLevel(msgspec.Struct, rename="camel"):
    """Answer to GET namespaces/NAME: its UID, empty if there is none, and the Pod Security level that it enforces.

    A watch WITH_LEVELS has it, too, as the member `namespace` beside each ADDED pod, as new as that pod.

    is_default: neither a label nor a setting says so: then runtimes with engines give its pods no more than baseline.
    services: whether it has any Service, so that its pods may ask for names.
    """

    uid: str = ""
    level: str = "restricted"
    is_default: bool = False
    services: bool = False


class ServiceEndpoint(msgspec.Struct, frozen=True, array_like=True):
    """A ready endpoint; `hostname` is empty if it has no name of its own."""

    addresses: tuple[str, ...]
    hostname: str = ""


class ServicePortRecord(msgspec.Struct, frozen=True, array_like=True):
    """A port of endpoints. `protocol` in lower case."""

    name: str
    protocol: str
    number: int


class ServiceSlice(msgspec.Struct, frozen=True, omit_defaults=True):
    """Endpoints with the same ports."""

    endpoints: tuple[ServiceEndpoint, ...] = ()
    ports: tuple[ServicePortRecord, ...] = ()


class ServiceRecords(msgspec.Struct, frozen=True, omit_defaults=True):
    """Answer to GET services/NAMESPACE/NAME. `found`: there is such a Service. `external_name`: it stands for this name.

    recent: endpoints with a name of their own that were there until a moment ago.
    """

    found: bool = False
    external_name: str = ""
    slices: tuple[ServiceSlice, ...] = ()
    recent: tuple[ServiceEndpoint, ...] = ()


class NetworkQuery(Struct):
    """Query of GET network. `known`: the version that the agent has."""

    known: Annotated[Int64, at(0)] = 0


class NetworkPeer(msgspec.Struct, frozen=True, array_like=True):
    """Another node: its name, its pod CIDR and its address."""

    node: str
    cidr: str
    address: str


class PodNetwork(msgspec.Struct, frozen=True, omit_defaults=True):
    """Answer to GET network. `cidr` is the node's own part of `cluster`; empty: it has none.

    All but the version is left out if the agent knows that.
    """

    version: int = 0
    cidr: str = ""
    cluster: str = ""
    peers: tuple[NetworkPeer, ...] = ()


class AddressNames(msgspec.Struct, frozen=True):
    """Answer to GET addresses/ADDRESS: names of endpoints, without the cluster's domain."""

    names: list[str] = []


class EventReport(Struct):
    """One event about a pod. `count`: times since the last report; `known`: it was reported before; `path`: part of the pod.

    owner: UID of the pod's controller: one event stands for all of its pods, on whatever nodes, and is not counted.
    """

    type: Annotated[str, at(0)] = "Normal"
    reason: Annotated[str, at(0)] = ""
    message: Annotated[str, at(0)] = ""
    when: Annotated[Time | None, at(0)] = None
    path: Annotated[str, at(0)] = ""
    count: Annotated[Int32, at(0)] = 1
    known: Annotated[bool, at(0)] = False
    owner: Annotated[str, at(0)] = ""


class StatusReport(Struct):
    """Status of one pod, and events since the last report.

    gone: its deletion was asked for, and its containers have ended and been cleaned up.
    peak_memory: of a pod that has ended, the most bytes of memory that were seen in use, by container.
    """

    namespace: Annotated[str, at(0)] = ""
    name: Annotated[str, at(0)] = ""
    uid: Annotated[str, at(0)] = ""
    status: Annotated[PodStatus, at(0)] = msgspec.field(default_factory=PodStatus)
    gone: Annotated[bool, at(0)] = False
    events: Annotated[tuple[EventReport, ...], at(0)] = ()
    peak_memory: Annotated[dict[str, Int64], at(0)] = msgspec.field(default_factory=dict)


class StatusReports(Struct):
    """Body of POST statuses."""

    items: Annotated[tuple[StatusReport, ...], at(0)] = ()


class StatusOutcome(msgspec.Struct, omit_defaults=True):
    """What became of a report: 200, 403 (not this agent's pod), 404 (no such pod any more) or 409 (to be sent again)."""

    uid: str
    code: int
    message: str = ""


class StatusOutcomes(msgspec.Struct):
    """Answer to POST statuses."""

    items: list[StatusOutcome] = []


class LogPiece(Struct):
    """Bytes of a container's log from `offset` on. `data` is base64 on the wire."""

    uid: Annotated[str, at(0)] = ""
    namespace: Annotated[str, at(0)] = ""
    name: Annotated[str, at(0)] = ""
    container: Annotated[str, at(0)] = ""
    attempt: Annotated[Int32, at(0)] = 0
    offset: Annotated[Int64, at(0)] = 0
    data: Annotated[bytes, at(0)] = b""


class LogPieces(Struct):
    """Body of POST logs. Pieces whose names do not fit together, or not to a pod of the node, are answered with 403."""

    items: Annotated[tuple[LogPiece, ...], at(0)] = ()


class LogOutcome(msgspec.Struct, kw_only=True):
    """What became of a piece. `next`: offset from which the API wants to go on."""

    uid: str
    container: str
    attempt: int = 0
    next: int
    code: int = 200


class LogOutcomes(msgspec.Struct):
    """Answer to POST logs."""

    items: list[LogOutcome] = []


_Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class ResourceUsage(Struct):
    """Nanocores on average over the window, and bytes at its end."""

    cpu: Annotated[_Count, at(0)] = 0
    memory: Annotated[_Count, at(0)] = 0


class NodeUsage(Struct):
    """Usage of a node. `pods` has what each container uses, by pod UID and container name."""

    node: Annotated[str, at(0)] = ""
    window: Annotated[float, msgspec.Meta(gt=0, le=3600), at(0)] = 1.0
    used: Annotated[ResourceUsage, at(0)] = msgspec.field(default_factory=ResourceUsage)
    pods: Annotated[dict[str, dict[str, ResourceUsage]], at(0)] = msgspec.field(default_factory=dict)


class UsageReports(Struct):
    """Body of POST usage."""

    items: Annotated[tuple[NodeUsage, ...], at(0)] = ()


class UsageOutcome(msgspec.Struct):
    """Answer to POST usage: how many reports were of nodes that the request speaks for; the others are ignored."""

    accepted: int


class RemovedVolume(Struct):
    """A volume whose data an agent was to remove; `error`: why they are still there, empty if they are gone."""

    name: Annotated[str, at(0)] = ""
    uid: Annotated[str, at(0)] = ""
    error: Annotated[str, at(0)] = ""


class RemovedVolumes(Struct):
    """Body of POST removed-volumes."""

    items: Annotated[tuple[RemovedVolume, ...], at(0)] = ()


class RemovalOutcome(msgspec.Struct):
    """Answer to POST removed-volumes: how many were volumes that the request speaks for; the others are ignored."""

    accepted: int


class JoinRequest(Struct):
    """Body of POST join: let the secret with this digest, a SHA-256 in hexadecimal, stand for the node."""

    node: Annotated[str, at(0)] = ""
    digest: Annotated[str, at(0)] = ""


class JoinAnswer(Struct):
    """Answer to POST join. approved: False while the node waits for an administrator."""

    approved: Annotated[bool, at(0)] = True


class CredentialAnswer(Struct):
    """Answer to GET credential, in seconds: how long it lasts in all, and from now on; 0: it has no end, or is not renewed."""

    life_seconds: Annotated[float, at(0)] = 0.0
    left_seconds: Annotated[float, at(0)] = 0.0


class CallNotice(msgspec.Struct, frozen=True):
    """Tells an agent that a call for one of its nodes waits."""

    id: str
    node: str


class CallRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the agent is to do. kind: exec, attach, forward; a forward without a port only asks whether there is such a pod."""

    kind: str
    uid: str
    namespace: str
    name: str
    container: str = ""
    command: tuple[str, ...] = ()
    stdin: bool = False
    stdout: bool = False
    stderr: bool = False
    tty: bool = False
    port: int = 0


class CallReply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """First either `ready` or why it is `refused`; of what was ready, in the end, its `exit_code` or how it `failed`."""

    ready: bool = False
    refused: str = ""
    exit_code: int | None = None
    failed: str = ""

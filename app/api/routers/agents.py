"""Endpoints that only agents call: reports of pods' statuses, logs, usage and removed volumes, and calls to containers.

Under /apis/agents.jobplane.dev/v1/nodes/NODE/, where NODE is a node that the token speaks for, or `-` for all of its nodes.
One request serves many pods: these are the busiest paths after Kubernetes' own.
"""

from typing import Annotated, NoReturn, cast

from fastapi import APIRouter, Depends
from starlette.requests import Request

from app.api.dependencies import Nodes, RegistryDep, RequiredNodes, require_node, stream_claim
from app.api.direct_route import DirectRoute
from app.api.http import errors
from app.api.http.content import read_body
from app.api.middleware import NODES
from app.api.streams.agent_calls import Calls
from app.api.struct_route import EVERY_METHOD, AsgiResponse, FromBody, FromQuery, S
from app.client.protocol import (
    AddressNames,
    LogOutcome,
    LogOutcomes,
    LogPiece,
    LogPieces,
    NamespaceLevel,
    NetworkQuery,
    PodNetwork,
    RemovalOutcome,
    RemovedVolumes,
    ServiceRecords,
    StatusOutcomes,
    StatusReports,
    UsageOutcome,
    UsageReports,
)
from app.kinds.pod.pod import KIND as PODS
from app.kinds.pod.pod import Pod
from app.machinery.decoding.decode import decode as decode_body
from app.machinery.errors import bad_request
from app.registry import Append, Key, Stream, offload
from app.registry.agents import node_usage, removed_volumes, status_reports
from app.registry.agents.namespace_levels import read_level
from app.registry.codec import decode, key_of
from app.registry.verbs.objects import Registry, get_many

DECODING = 16  # reports are only decoded, in a sixteenth of the time that all steps of a document take
OBJECT = 64  # bytes that take as long to decode as an object takes by itself
LONGEST_NAME = 253
JOB_NAME = "batch.kubernetes.io/job-name"
router = APIRouter(
    prefix=f"{NODES}{{node}}", tags=["agents"], route_class=DirectRoute, dependencies=[Depends(require_node)]
)


class ReportsBody(FromBody[S]):
    """Dependency: a body with reports. It is checked like any other: what is stored of it must be readable by everybody."""

    async def __call__(self, request: Request) -> S:
        body = await read_body(request)
        if not body:
            raise bad_request("the body is not what an agent sends: it is empty")
        weight = max(len(body), OBJECT * body.count(b"{")) // DECODING
        return (await offload.run(weight, decode_body, body, self.type)).object


@router.post("/statuses", summary="Report statuses of pods")
async def report_statuses(
    registry: RegistryDep, nodes: RequiredNodes, reports: Annotated[StatusReports, Depends(ReportsBody(StatusReports))]
) -> StatusOutcomes:
    """Store how pods fare. A report of a pod that is not bound to one of the nodes gets 403, of one that is gone 404."""
    items = reports.items
    _check_names(*(name for item in items for name in (item.namespace, item.name)))
    return StatusOutcomes(await status_reports.accept(registry, PODS, items, nodes.includes))


@router.post("/logs", summary="Append to logs")
async def append_logs(
    registry: RegistryDep, nodes: RequiredNodes, pieces: Annotated[LogPieces, Depends(ReportsBody(LogPieces))]
) -> LogOutcomes:
    """Store pieces of containers' logs, each where it belongs: a piece that was sent before is not stored again."""
    items = pieces.items
    _check_names(*(name for piece in items for name in (piece.uid, piece.namespace, piece.name, piece.container)))
    pods = await _pods_of(registry, nodes, items)
    appends = [_append(piece, pods.get(_key(piece))) for piece in items]
    sizes = iter(await registry.logs.append([each for each in appends if each]))
    return LogOutcomes(
        [
            _outcome(piece, next(sizes), 200) if append else _outcome(piece, 0, 403)
            for piece, append in zip(items, appends, strict=True)
        ]
    )


@router.post("/usage", summary="Report usage of nodes")
async def report_usage(
    registry: RegistryDep, nodes: RequiredNodes, usage: Annotated[UsageReports, Depends(ReportsBody(UsageReports))]
) -> UsageOutcome:
    """Keep what nodes, and the containers on them, use of processors and memory."""
    _check_names(*(item.node for item in usage.items))
    return UsageOutcome(await node_usage.accept(registry, usage.items, nodes.includes))


@router.post("/removed-volumes", summary="Report removed volumes")
async def report_removed_volumes(
    registry: RegistryDep,
    nodes: RequiredNodes,
    volumes: Annotated[RemovedVolumes, Depends(ReportsBody(RemovedVolumes))],
) -> RemovalOutcome:
    """Note that the data of released volumes are gone, or why not. Volumes that the node was not chosen for are ignored."""
    _check_names(*(item.name for item in volumes.items))
    return RemovalOutcome(await removed_volumes.accept(registry, volumes.items, nodes.includes))


@router.get("/namespaces/{namespace}", summary="Read the Pod Security level of a namespace")
async def read_namespace_level(registry: RegistryDep, namespace: str) -> NamespaceLevel:
    """Tell an agent whether pods of the namespace are to be kept from its node, under which UID, and whether it has Services."""
    _check_names(namespace)
    return await read_level(registry, namespace)


@router.get("/services/{namespace}/{name}", summary="Read what DNS tells of a Service")
async def read_service_records(registry: RegistryDep, namespace: str, name: str) -> ServiceRecords:
    """Tell an agent's DNS responder the ready endpoints of a Service."""
    _check_names(namespace, name)
    return await registry.services.records(namespace, name)


@router.get("/network", summary="Read the pod network")
async def read_network(
    registry: RegistryDep, nodes: RequiredNodes, query: Annotated[NetworkQuery, Depends(FromQuery(NetworkQuery))]
) -> PodNetwork:
    """Tell an agent the pod CIDR of its node, and those of all other nodes, if that differs from what it knows."""
    found = await registry.pod_networks.read(nodes.name)
    return PodNetwork(version=found.version) if found.version == query.known else found


@router.get("/addresses/{address}", summary="Read the names of an address")
async def read_address_names(registry: RegistryDep, address: str) -> AddressNames:
    """Tell an agent's DNS responder which endpoints of Services have this address."""
    _check_names(address)
    return await registry.services.names(address)


@router.get("/calls", summary="Wait for calls", dependencies=[Depends(stream_claim)])
@router.get("/calls/", include_in_schema=False, dependencies=[Depends(stream_claim)])
async def wait_for_calls(request: Request, nodes: RequiredNodes) -> AsgiResponse:
    """Stream a line of JSON, with an id and a node, for each exec, attach or port-forward that an agent is to answer."""
    calls: Calls = request.app.state.calls
    return AsgiResponse(calls.ring_stream(nodes.includes))


@router.get("/calls/{call:path}", summary="Answer a call", dependencies=[Depends(stream_claim)])
async def answer_call(request: Request, nodes: RequiredNodes, call: str) -> AsgiResponse:
    """Become the WebSocket that carries the call. 404 if nobody waits for it any longer."""
    calls: Calls = request.app.state.calls
    return AsgiResponse(calls.accept(request, nodes.name, call))


@router.api_route("", methods=EVERY_METHOD, include_in_schema=False)
@router.api_route("/{action:path}", methods=EVERY_METHOD, include_in_schema=False)
async def refuse(request: Request) -> NoReturn:
    """405 for a method that no agent uses, else 404."""
    raise errors.no_such_path() if request.method == "POST" else errors.no_such_method()


async def _pods_of(registry: Registry, nodes: Nodes, pieces: tuple[LogPiece, ...]) -> dict[Key, Pod]:
    """The pods that the pieces name, as far as they are bound to the agent's nodes.

    A pod that is gone has its last lines refused: no node can be held to them.
    """
    heads = await get_many(registry, list({_key(piece) for piece in pieces}))
    pods = ((key, cast("Pod", decode(PODS, head))) for key, head in heads.items())
    return {key: pod for key, pod in pods if nodes.includes(pod.spec.node_name)}


def _key(piece: LogPiece) -> Key:
    return key_of(PODS, piece.namespace, piece.name)


def _check_names(*names: str) -> None:
    """What goes into the database's indexes must fit there."""
    if any(len(name) > LONGEST_NAME for name in names):
        raise bad_request(f"a name may not have more than {LONGEST_NAME} characters")


def _append(piece: LogPiece, pod: Pod | None) -> Append | None:
    """None unless a run of one of the pod's containers can have written the piece: its log is shown under these names."""
    if pod is None or pod.metadata.uid != piece.uid or piece.attempt < 0:
        return None
    if all(each.name != piece.container for each in (*pod.spec.containers, *pod.spec.init_containers)):
        return None
    stream = Stream(piece.uid, piece.container, piece.attempt)
    return Append(stream, piece.namespace, piece.name, piece.offset, piece.data, pod.metadata.labels.get(JOB_NAME, ""))


def _outcome(piece: LogPiece, size: int, code: int) -> LogOutcome:
    return LogOutcome(uid=piece.uid, container=piece.container, attempt=piece.attempt, next=size, code=code)

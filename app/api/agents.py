"""Endpoints that only agents call: batches of pod statuses, of log pieces, and of usage. One request serves many pods.

Under /apis/agents.jobplane.dev/v1/nodes/NODE/, where NODE is a node that the token speaks for, or `-` for all of its nodes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, TypeVar, cast

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from app.api.auth import impersonation
from app.api.auth.authenticator import Authenticator, User, path_refusal
from app.api.http import errors
from app.api.http.content import read_body
from app.api.streams.agent_calls import Calls
from app.api.streams.revocation import Claim
from app.kinds.pod.pod import KIND as PODS
from app.kinds.pod.pod import Pod
from app.machinery.base import Int32, Int64, Struct, at
from app.machinery.decode import decode as decode_body
from app.machinery.errors import bad_request
from app.registry import node_usage as usage
from app.registry import offload, status_reports
from app.registry.codec import decode, key_of
from app.registry.node_usage import NodeUsage
from app.registry.objects import Registry
from app.registry.status_reports import Report
from app.store import Append, Key, Stream

S = TypeVar("S", bound=Struct)
DECODING = 16  # reports are only decoded, in a sixteenth of the time that all steps of a document take
OBJECT = 64  # bytes that take as long to decode as an object takes by itself
Owns = Callable[[str], bool]
"""Whether a node is one that the request speaks for."""
LONGEST_NAME = 253
JOB_NAME = "batch.kubernetes.io/job-name"
PREFIX = "/apis/agents.jobplane.dev/v1/nodes/"


class Reports(Struct):
    """The body of POST statuses."""

    items: Annotated[tuple[Report, ...], at(0)] = ()


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
    """The body of POST logs. Pieces whose names do not fit together, or not to a pod of the node, are answered with 403."""

    items: Annotated[tuple[LogPiece, ...], at(0)] = ()


class Usage(Struct):
    """The body of POST usage."""

    items: Annotated[tuple[NodeUsage, ...], at(0)] = ()


@dataclass(frozen=True)
class Agents:
    """The application under `PREFIX`."""

    registry: Registry
    authenticator: Authenticator

    async def answer(self, request: Request) -> ASGIApp:
        user = await impersonation.user_of(self.registry, self.authenticator, request)
        path: str = request.scope["path"]
        node, _, action = path.removeprefix(PREFIX).partition("/")
        if not (user.is_node(node) or (node == "-" and user.nodes)):
            raise path_refusal(user, request.method.lower(), path)
        request.state.claim = self._claim(request, user)
        if request.method == "GET" and action.partition("/")[0] == "calls":
            calls: Calls = request.scope["app"].state.calls
            call = action.partition("/")[2]
            return calls.answering(request, node, call) if call else calls.ringing(_nodes(user, node))
        if request.method != "POST":
            raise errors.no_such_method()
        owns = _nodes(user, node)
        if action == "statuses":
            return await self._statuses(owns, await read_body(request))
        if action == "logs":
            return await self._logs(owns, await read_body(request))
        if action == "usage":
            return await self._usage(owns, await read_body(request))
        raise errors.no_such_path()

    def _claim(self, request: Request, user: User) -> Claim:
        """By which a stream goes on: an agent's token, or the right of its holder to act as that agent."""
        credential: impersonation.Credential = request.state.credential
        if user is credential.holder:
            return Claim(credential.digest)

        async def judge() -> None:
            await impersonation.acting(self.registry, credential.holder, request.headers)

        return Claim(credential.digest, judge)

    async def _statuses(self, owns: Owns, body: bytes) -> Response:
        items = (await _read(body, Reports)).items
        _check_names(*(name for item in items for name in (item.namespace, item.name)))
        outcomes = await status_reports.accept(self.registry, PODS, items, owns)
        return _json({"items": outcomes})

    async def _logs(self, owns: Owns, body: bytes) -> Response:
        pieces = (await _read(body, LogPieces)).items
        _check_names(*(name for piece in pieces for name in (piece.uid, piece.namespace, piece.name, piece.container)))
        pods = await self._pods_of(owns, pieces)
        appends = [_append(piece, pods.get(_key(piece))) for piece in pieces]
        sizes = iter(await self.registry.store.logs.append([each for each in appends if each]))
        items = [
            _kept(piece, next(sizes)) if append else _kept(piece, 0) | {"code": 403}
            for piece, append in zip(pieces, appends, strict=True)
        ]
        return _json({"items": items})

    async def _usage(self, owns: Owns, body: bytes) -> Response:
        items = (await _read(body, Usage)).items
        _check_names(*(item.node for item in items))
        return _json({"accepted": await usage.accept(self.registry, items, owns)})

    async def _pods_of(self, owns: Owns, pieces: tuple[LogPiece, ...]) -> dict[Key, Pod]:
        """The pods that the pieces name, as far as they are bound to the agent's nodes.

        A pod that is gone has its last lines refused: no node can be held to them.
        """
        heads = await self.registry.store.get_many(list({_key(piece) for piece in pieces}))
        pods = ((key, cast("Pod", decode(PODS, head))) for key, head in heads.items())
        return {key: pod for key, pod in pods if owns(pod.spec.node_name)}


def _key(piece: LogPiece) -> Key:
    return key_of(PODS, piece.namespace, piece.name)


def _nodes(user: User, node: str) -> Owns:
    """Whether a node is among those that a path speaks of."""
    return user.is_node if node == "-" else node.__eq__


async def _read(body: bytes, type_: type[S]) -> S:
    """Checked like any other body: what is stored of it must be readable by everybody."""
    if not body:
        raise bad_request("the body is not what an agent sends: it is empty")
    weight = max(len(body), OBJECT * body.count(b"{")) // DECODING
    return (await offload.run(weight, decode_body, body, type_)).object


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


def _kept(piece: LogPiece, size: int) -> dict[str, object]:
    return {"uid": piece.uid, "container": piece.container, "attempt": piece.attempt, "next": size, "code": 200}


def _json(value: object) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")

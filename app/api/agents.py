"""What only agents call: batches of pod statuses, of log pieces, and of what nodes use. One request serves many pods.
GET calls is the stream in which an agent is rung, and calls/ID how it answers (`app.api.calls`).

Under /apis/agents.jobplane.dev/v1/nodes/NODE/, where NODE is a node that the token speaks for, or `-` for all of its nodes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from app.api import errors
from app.api.auth import Authenticator, User, path_refusal
from app.api.calls import Calls
from app.api.content import read_body
from app.kinds import by_name
from app.kinds.base import Int32, Int64, Kind, Struct, at
from app.kinds.decode import decode as decode_body
from app.kinds.errors import bad_request
from app.kinds.pod import Pod
from app.registry import reports, usage
from app.registry.codec import decode, key_of
from app.registry.objects import Registry
from app.registry.reports import Report
from app.registry.usage import NodeUsage
from app.store import Append, Stream

S = TypeVar("S", bound=Struct)
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
    """The body of POST logs."""

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
        user = await self.authenticator.user(request.headers.get("authorization"))
        node, _, action = request.url.path.removeprefix(PREFIX).partition("/")
        if not (user.is_node(node) or (node == "-" and user.nodes)):
            raise path_refusal(user, request.method.lower(), request.url.path)
        if request.method == "GET" and action.partition("/")[0] == "calls":
            calls: Calls = request.scope["app"].state.calls
            call = action.partition("/")[2]
            return calls.answering(request, node, call) if call else calls.ringing(_nodes(user, node))
        if request.method != "POST":
            raise errors.no_such_method()
        if action == "statuses":
            return await self._statuses(user, await read_body(request))
        if action == "logs":
            return await self._logs(user, await read_body(request))
        if action == "usage":
            return await self._usage(user, await read_body(request))
        raise errors.no_such_path()

    async def _statuses(self, user: User, body: bytes) -> Response:
        items = _read(body, Reports).items
        _check_names(*(name for item in items for name in (item.namespace, item.name)))
        outcomes = await reports.accept(self.registry, _pods(), items, user.is_node)
        return _json({"items": outcomes})

    async def _logs(self, user: User, body: bytes) -> Response:
        pieces = _read(body, LogPieces).items
        _check_names(*(name for piece in pieces for name in (piece.uid, piece.namespace, piece.name, piece.container)))
        allowed = await self._jobs(user, pieces)
        mine = [piece for piece in pieces if piece.uid in allowed]
        sizes = await self.registry.store.logs.append([_append(piece, allowed[piece.uid]) for piece in mine])
        items = [_kept(piece, size) for piece, size in zip(mine, sizes, strict=True)]
        items += [_kept(piece, 0) | {"code": 403} for piece in pieces if piece.uid not in allowed]
        return _json({"items": items})

    async def _usage(self, user: User, body: bytes) -> Response:
        items = _read(body, Usage).items
        _check_names(*(item.node for item in items))
        return _json({"accepted": await usage.accept(self.registry, items, user.is_node)})

    async def _jobs(self, user: User, pieces: tuple[LogPiece, ...]) -> dict[str, str]:
        """Pods that are bound to the agent's nodes, by uid: the Job of each, if any.

        A pod that is gone has its last lines refused: it is nobody's.
        """
        kind = _pods()
        heads = await self.registry.store.get_many(
            list({key_of(kind, piece.namespace, piece.name) for piece in pieces})
        )
        pods = [decode(kind, head) for head in heads.values()]
        mine = [pod for pod in pods if isinstance(pod, Pod) and user.is_node(pod.spec.node_name)]
        return {pod.metadata.uid: pod.metadata.labels.get(JOB_NAME, "") for pod in mine}


def _nodes(user: User, node: str) -> Callable[[str], bool]:
    """Whether a node is among those that a path speaks of."""
    return user.is_node if node == "-" else node.__eq__


def _pods() -> Kind:
    kind = by_name("", "Pod")
    if kind is None:
        raise LookupError("Pod is a kind of every build")
    return kind


def _read(body: bytes, type_: type[S]) -> S:
    """Checked like any other body: what is stored of it must be readable by everybody."""
    if not body:
        raise bad_request("the body is not what an agent sends: it is empty")
    return decode_body(body, type_).object


def _check_names(*names: str) -> None:
    """What goes into the database's indexes must fit there."""
    if any(len(name) > LONGEST_NAME for name in names):
        raise bad_request(f"a name may not have more than {LONGEST_NAME} characters")


def _append(piece: LogPiece, job: str) -> Append:
    stream = Stream(piece.uid, piece.container, piece.attempt)
    return Append(stream, piece.namespace, piece.name, piece.offset, piece.data, job)


def _kept(piece: LogPiece, size: int) -> dict[str, object]:
    return {"uid": piece.uid, "container": piece.container, "attempt": piece.attempt, "next": size, "code": 200}


def _json(value: object) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")

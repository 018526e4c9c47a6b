"""FastAPI routes that take and give msgspec structs, and document them. Every router in `app.api.routers` uses `StructRoute`.

FastAPI knows pydantic's models only, and would validate each answer; the rest of this service speaks msgspec. An endpoint
declares a query by `Annotated[T, Depends(FromQuery(T))]`, a body by a subclass of `FromBody`, and an answer by its return type.
"""

import inspect
from collections.abc import Awaitable, Callable, Iterable
from functools import wraps
from typing import Any, Generic, TypeVar, get_args

import msgspec
from fastapi import APIRouter
from fastapi.params import Depends
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from app.api.http import query
from app.api.openapi.meta import Status
from app.machinery.base import Struct

OTHER_METHODS = ["HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"]
EVERY_METHOD = ["GET", *OTHER_METHODS]
Schema = dict[str, Any]
S = TypeVar("S", bound=Struct)
T = TypeVar("T", bound=msgspec.Struct)
_JSON = "application/json"


class FromQuery(Generic[S]):
    """Dependency: the query as a struct. Of a parameter that is repeated the first value counts. 400 for what is no number."""

    def __init__(self, type_: type[S]) -> None:
        self.type = type_

    async def __call__(self, request: Request) -> S:
        return query.read(query.query_of(request), self.type)


class FromBody(Generic[S]):
    """Dependency: the body as a struct. Subclasses say how it is read, and within which bounds."""

    def __init__(self, type_: type[S]) -> None:
        self.type = type_

    async def __call__(self, request: Request) -> S:
        raise NotImplementedError


class AsgiResponse(Response):
    """The answer of an ASGI application that sends it by itself: a stream, or an upgraded connection."""

    def __init__(self, app: ASGIApp) -> None:
        super().__init__()
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)


class StructRoute(APIRoute):
    """FastAPI's route, which encodes the struct that its endpoint returns. `structs` are those that its documentation needs."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        signature = inspect.signature(endpoint)
        sources = [source for each in signature.parameters.values() if (source := _source(each)) is not None]
        answer = signature.return_annotation
        self.structs: tuple[type[msgspec.Struct], ...] = (Status, *(source.type for source in sources))
        code = options.get("status_code") or 200
        if isinstance(answer, type) and issubclass(answer, msgspec.Struct):
            self.structs = (*self.structs, answer)
            options["responses"] = {code: _content(answer), **(options.get("responses") or {})}
            if not hasattr(endpoint, "__wrapped__"):  # an included route may be made anew of this one
                endpoint = _encode_answer(endpoint, code)
        options["responses"] = {"default": _REFUSAL, **(options.get("responses") or {})}
        options["response_model"] = None
        options["openapi_extra"] = _describe_parameters(sources) | (options.get("openapi_extra") or {})
        super().__init__(path, endpoint, **options)


def _source(parameter: inspect.Parameter) -> "FromQuery[Any] | FromBody[Any] | None":
    found = (each.dependency for each in get_args(parameter.annotation)[1:] if isinstance(each, Depends))
    return next((each for each in found if isinstance(each, FromQuery | FromBody)), None)


def _encode_answer(endpoint: Callable[..., Awaitable[msgspec.Struct]], code: int) -> Callable[..., Awaitable[Response]]:
    @wraps(endpoint)
    async def answer(**parameters: Any) -> Response:
        return Response(msgspec.json.encode(await endpoint(**parameters)), code, media_type=_JSON)

    return answer


def _ref(struct: type[msgspec.Struct]) -> Schema:
    (schema,), _ = msgspec.json.schema_components((struct,), ref_template=_REF)
    return schema


_REF = "#/components/schemas/{name}"


def _content(struct: type[msgspec.Struct], description: str = "Done.") -> Schema:
    return {"description": description, "content": {_JSON: {"schema": _ref(struct)}}}


_REFUSAL = _content(Status, "Refused, or failed: the Status says why.")


def _describe_parameters(sources: Iterable["FromQuery[Any] | FromBody[Any]"]) -> Schema:
    """Return what OpenAPI says of an operation's body and of its query parameters."""
    found: Schema = {}
    for source in sources:
        if isinstance(source, FromBody):
            found["requestBody"] = {"content": {_JSON: {"schema": _ref(source.type)}}}
        else:
            found["parameters"] = list(_parameters(source.type))
    return found


def _parameters(struct: type[msgspec.Struct]) -> Iterable[Schema]:
    fields = components((struct,))[struct.__name__]["properties"]
    for name, schema in fields.items():
        described = {"description": schema.pop("description")} if "description" in schema else {}
        yield {"name": name, "in": "query", "required": False, **described, "schema": schema}


def components(structs: Iterable[type[msgspec.Struct]]) -> Schema:
    """The schemas of structs, and of all that they reach, by name."""
    _, found = msgspec.json.schema_components(sorted(set(structs), key=str), ref_template=_REF)
    return found


def structs_of(router: APIRouter) -> Iterable[type[msgspec.Struct]]:
    """The structs that the routes of a router take and give."""
    return (struct for route in router.routes if isinstance(route, StructRoute) for struct in route.structs)

"""Documentation of our own endpoints: /docs for people, /docs/openapi.json for programs. Kubernetes' paths are in /openapi.

Who may read them: administrators, and users whose ClusterRole allows it by `nonResourceURLs`, as for any path that is no
resource. A browser has no token to send: `kubectl proxy` sends one for it. The page loads nothing from elsewhere.
"""

from collections.abc import Iterator
from functools import cache
from html import escape
from typing import Any

import msgspec
from fastapi import APIRouter, Depends
from fastapi.openapi.utils import get_openapi
from starlette.responses import HTMLResponse, Response

from app.api.dependencies import require_path
from app.api.resources import version
from app.api.routers import agents, data_keys, health, history, join, kept_logs, metrics, signin
from app.api.struct_route import components, structs_of

TITLE = "Jobplane"
DOCUMENTED = (
    agents.router,
    data_keys.router,
    join.router,
    kept_logs.router,
    history.router,
    signin.router,
    metrics.router,
    health.router,
)
"""The routers of our own endpoints, in the order in which routes are tried: `agents` before what `join` catches."""
_SUMMARY = "Endpoints beside Kubernetes' API, which /openapi/v3 describes: for agents, administrators and probes."
_STYLE = "body{font:1em/1.5 sans-serif;max-width:60em;margin:2em auto;padding:0 1em}pre{background:#eee;padding:.5em}"
_POLICY = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"}
router = APIRouter(include_in_schema=False, dependencies=[Depends(require_path)])


@router.get("/docs")
@router.head("/docs")
async def read_docs() -> HTMLResponse:
    """The documentation as a page."""
    return HTMLResponse("".join(_page(document())), headers=_POLICY)


@router.get("/docs/openapi.json")
@router.head("/docs/openapi.json")
async def read_openapi() -> Response:
    """The documentation as OpenAPI 3.1."""
    return Response(msgspec.json.encode(document()), media_type="application/json")


@cache
def document() -> dict[str, Any]:
    """The OpenAPI document."""
    routes = [route for each in DOCUMENTED for route in each.routes]
    found = get_openapi(title=TITLE, version=version.jobplane_version(), description=_SUMMARY, routes=routes)
    structs = {struct for each in DOCUMENTED for struct in structs_of(each)}
    token = {"type": "http", "scheme": "bearer", "description": "A token, as `jobplane token` makes them."}
    found["components"] = {"schemas": components(structs), "securitySchemes": {"token": token}}
    return found | {"security": [{"token": []}]}


def _page(described: dict[str, Any]) -> Iterator[str]:
    yield f"<!doctype html><title>{TITLE}</title><style>{_STYLE}</style><h1>{TITLE} {described['info']['version']}</h1>"
    yield f"<p>{escape(_SUMMARY)} For programs: <a href='docs/openapi.json'>openapi.json</a>.</p>"
    for path, operations in described["paths"].items():
        for method, operation in operations.items():
            yield from _operation(f"{method.upper()} {path}", operation)
    yield "<h2>Schemas</h2>"
    for name, schema in described["components"]["schemas"].items():
        text = msgspec.json.format(msgspec.json.encode(schema)).decode()
        yield f"<details id='{escape(name)}'><summary>{escape(name)}</summary><pre>{escape(text)}</pre></details>"


def _operation(name: str, operation: dict[str, Any]) -> Iterator[str]:
    yield f"<h2><code>{escape(name)}</code></h2><p>{escape(operation['summary'])}. {escape(operation.get('description', ''))}</p>"
    for each in operation.get("parameters", ()):
        told = f"<code>{escape(each['name'])}</code> ({each['in']}): {escape(each.get('description', ''))}"
        yield f"<li>{told}</li>"
    if body := operation.get("requestBody"):
        yield f"<p>Takes {_schema(body)}.</p>"
    for code, answer in operation["responses"].items():
        yield f"<p>{escape(code)}: {escape(answer['description'])} {_schema(answer)}</p>"


def _schema(content: dict[str, Any]) -> str:
    """A link to the schema of a body or an answer, if it has one."""
    named: str = content.get("content", {}).get("application/json", {}).get("schema", {}).get("$ref", "")
    name = escape(named.rpartition("/")[2])
    return f"<a href='#{name}'>{name}</a>" if name else ""

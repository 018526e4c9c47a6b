"""Endpoints for probes: whether the process lives, and whether it is ready. Everybody may ask, by any method.

As in apiserver, `?verbose` answers a line for each check, `?exclude=NAME` leaves one out, and `/readyz/NAME` asks for one alone.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import PlainTextResponse

from app.api.dependencies import RegistryDep, require_path
from app.api.http import errors
from app.api.struct_route import OTHER_METHODS, StructRoute
from app.metrics.health_checks import PING, Check, report
from app.registry.readiness import readiness
from app.registry.verbs.objects import Registry

router = APIRouter(tags=["health"], route_class=StructRoute)
_PARAMETERS = [
    {"name": "verbose", "in": "query", "allowEmptyValue": True, "schema": {"type": "string"},
     "description": "Answer a line for each check."},
    {"name": "exclude", "in": "query", "schema": {"type": "array", "items": {"type": "string"}},
     "description": "Check to leave out; can be repeated."},
]  # fmt: skip
_OPEN: dict[str, Any] = {"security": [], "parameters": _PARAMETERS}


def checks_of(probe: str, registry: Registry, stopping: asyncio.Event) -> Sequence[Check]:
    """Return the checks of livez, readyz or healthz. `stopping`: set once the process has been told to stop."""
    if probe == "livez":
        return (PING,)

    async def shutdown() -> str:
        return "process is shutting down" if stopping.is_set() else ""

    return *readiness(registry), Check("shutdown", shutdown)


@router.get("/livez", summary="Probe liveness", openapi_extra=_OPEN)
@router.api_route("/livez", methods=OTHER_METHODS, include_in_schema=False)
async def probe_liveness(request: Request, registry: RegistryDep) -> PlainTextResponse:
    """Says ok while the process serves requests."""
    return await _probe("livez", request, registry)


@router.get("/readyz", summary="Probe readiness", openapi_extra=_OPEN)
@router.get("/healthz", summary="Probe readiness, by its older name", openapi_extra=_OPEN)
@router.api_route("/readyz", methods=OTHER_METHODS, include_in_schema=False)
@router.api_route("/healthz", methods=OTHER_METHODS, include_in_schema=False)
async def probe_readiness(request: Request, registry: RegistryDep) -> PlainTextResponse:
    """Says ok while the database takes writes, the change feed follows it, and the process is not told to stop; else 503."""
    return await _probe(request.scope["path"].strip("/"), request, registry)


@router.get("/livez/{check}", include_in_schema=False, dependencies=[Depends(require_path)])
@router.get("/readyz/{check}", include_in_schema=False, dependencies=[Depends(require_path)])
@router.get("/healthz/{check}", include_in_schema=False, dependencies=[Depends(require_path)])
async def probe_one(check: str, request: Request, registry: RegistryDep) -> PlainTextResponse:
    """Says ok while one check of a probe holds; else 503."""
    checks = checks_of(request.scope["path"].split("/")[1], registry, request.app.state.stopping)
    found = next((each for each in checks if each.name == check), None)
    if found is None:
        raise errors.no_such_path()
    if fault := await found.find_fault():
        raise errors.unavailable(fault)
    return PlainTextResponse("ok")


async def _probe(name: str, request: Request, registry: Registry) -> PlainTextResponse:
    query = request.query_params
    found = await report(name, checks_of(name, registry, request.app.state.stopping), query.getlist("exclude"))
    if "verbose" in query:
        return PlainTextResponse(
            found.lines, 200 if found.holds else 503, headers={"X-Content-Type-Options": "nosniff"}
        )
    if not found.holds:
        raise errors.unavailable(found.fault)
    return PlainTextResponse("ok")

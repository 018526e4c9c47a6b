"""Endpoints for probes: whether the process lives, and whether it is ready. Everybody may ask, by any method.

As in apiserver, `?verbose` answers a line for each check, `?exclude=NAME` leaves one out, and `/readyz/NAME` asks for one alone.
"""

from collections.abc import Awaitable, Callable, Collection
from typing import Any, NamedTuple

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import PlainTextResponse

from app.api.dependencies import RegistryDep, require_path
from app.api.http import errors
from app.api.struct_route import OTHER_METHODS, StructRoute
from app.registry.objects import Registry

router = APIRouter(tags=["health"], route_class=StructRoute)
_PARAMETERS = [
    {"name": "verbose", "in": "query", "allowEmptyValue": True, "schema": {"type": "string"},
     "description": "Answer a line for each check."},
    {"name": "exclude", "in": "query", "schema": {"type": "array", "items": {"type": "string"}},
     "description": "Check to leave out; can be repeated."},
]  # fmt: skip
_OPEN: dict[str, Any] = {"security": [], "parameters": _PARAMETERS}


class Check(NamedTuple):
    """One thing that must hold. `find_fault` returns why it does not, or an empty string."""

    name: str
    find_fault: Callable[[Registry], Awaitable[str]]


async def _ping(_: Registry) -> str:
    return ""


async def _change_feed(registry: Registry) -> str:
    return registry.feed_fault()


async def _database(registry: Registry) -> str:
    return await registry.database_fault()


LIVENESS = (Check("ping", _ping),)
READINESS = (*LIVENESS, Check("change-feed", _change_feed), Check("database", _database))
CHECKS = {"livez": LIVENESS, "readyz": READINESS, "healthz": READINESS}


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
    """Says ok while the database takes writes and the change feed follows it; else 503."""
    return await _probe(request.scope["path"].strip("/"), request, registry)


@router.get("/livez/{check}", include_in_schema=False, dependencies=[Depends(require_path)])
@router.get("/readyz/{check}", include_in_schema=False, dependencies=[Depends(require_path)])
@router.get("/healthz/{check}", include_in_schema=False, dependencies=[Depends(require_path)])
async def probe_one(check: str, request: Request, registry: RegistryDep) -> PlainTextResponse:
    """Says ok while one check of a probe holds; else 503."""
    checks = CHECKS[request.scope["path"].split("/")[1]]
    found = next((each for each in checks if each.name == check), None)
    if found is None:
        raise errors.no_such_path()
    if fault := await _fault_of(found, registry):
        raise errors.unavailable(fault)
    return PlainTextResponse("ok")


async def _probe(name: str, request: Request, registry: Registry) -> PlainTextResponse:
    query = request.query_params
    excluded = query.getlist("exclude")
    if "verbose" in query:
        return await _report(name, excluded, registry)
    for check in CHECKS[name]:
        if check.name not in excluded and (fault := await _fault_of(check, registry)):
            raise errors.unavailable(fault)
    return PlainTextResponse("ok")


async def _report(name: str, excluded: Collection[str], registry: Registry) -> PlainTextResponse:
    """Answer in apiserver's format, a line for each check."""
    checks, lines, holds = CHECKS[name], [], True
    for check in checks:
        fault = "" if check.name in excluded else await _fault_of(check, registry)
        holds = holds and not fault
        found = f"failed: {fault}" if fault else "excluded: ok" if check.name in excluded else "ok"
        lines.append(f"[{'-' if fault else '+'}]{check.name} {found}")
    if unknown := sorted({*excluded} - {check.name for check in checks})[:10]:
        quoted = ", ".join(f'"{each[:100]}"' for each in unknown)
        lines.append(f"warn: some health checks cannot be excluded: no matches for {quoted}")
    lines.append(f"{name} check {'passed' if holds else 'failed'}\n")
    return PlainTextResponse("\n".join(lines), 200 if holds else 503, headers={"X-Content-Type-Options": "nosniff"})


async def _fault_of(check: Check, registry: Registry) -> str:
    try:
        return await check.find_fault(registry)
    except Exception as error:
        return errors.as_api_error(error).message

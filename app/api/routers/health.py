"""Endpoints for probes: whether the process lives, and whether it is ready. Everybody may ask, by any method."""

from fastapi import APIRouter
from starlette.responses import PlainTextResponse

from app.api.dependencies import RegistryDep
from app.api.http import errors
from app.api.struct_route import OTHER_METHODS, StructRoute

router = APIRouter(tags=["health"], route_class=StructRoute)
_OPEN: dict[str, list[str]] = {"security": []}


@router.get("/livez", summary="Probe liveness", openapi_extra=_OPEN)
@router.api_route("/livez", methods=OTHER_METHODS, include_in_schema=False)
async def probe_liveness() -> PlainTextResponse:
    """Says ok while the process serves requests."""
    return PlainTextResponse("ok")


@router.get("/readyz", summary="Probe readiness", openapi_extra=_OPEN)
@router.get("/healthz", summary="Probe readiness, by its older name", openapi_extra=_OPEN)
@router.api_route("/readyz", methods=OTHER_METHODS, include_in_schema=False)
@router.api_route("/healthz", methods=OTHER_METHODS, include_in_schema=False)
async def probe_readiness(registry: RegistryDep) -> PlainTextResponse:
    """Says ok while the database takes writes and the change feed follows it; else 503."""
    if why := await registry.unready_reason():
        raise errors.unavailable(why)
    return PlainTextResponse("ok")

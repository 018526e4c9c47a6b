"""Endpoint of the numbers of this API process, in Prometheus' text format.

Administrators may read it, and users to whom a ClusterRole allows it by `nonResourceURLs`: the role `system:monitoring` does, to
the group of the same name. `docs/monitoring.md` shows how Prometheus gets a token.
"""

from typing import Any

from fastapi import APIRouter, Depends
from starlette.responses import Response

from app.api.dependencies import RegistryDep, require_path
from app.api.http.compression import Body
from app.api.struct_route import StructRoute
from app.metrics.exposition import CONTENT_TYPE

router = APIRouter(tags=["metrics"], route_class=StructRoute, dependencies=[Depends(require_path)])
_TEXT: dict[int | str, dict[str, Any]] = {200: {"description": "Done.", "content": {"text/plain": {}}}}


@router.get("/metrics", summary="Scrape metrics", responses=_TEXT)
@router.head("/metrics", include_in_schema=False)
async def scrape(registry: RegistryDep) -> Response:
    """Counts requests, commits and watches of this process, and measures the database and this process."""
    return Body(await registry.metrics.render(), media_type=CONTENT_TYPE)

"""Approval: certificatesigningrequests/NAME/approval, for `kubectl certificate approve` and `deny`. Called by `kubernetes`."""

from starlette.requests import Request
from starlette.types import ASGIApp

from app.api.resources import single_object
from app.api.resources.routes import RequestInfo
from app.kinds.auth.certificate_signing_request import as_approved_at
from app.registry.verbs.objects import Registry

_VERBS = {"GET": "get", "PUT": "update", "PATCH": "patch"}


async def answer(registry: Registry, request: Request, found: RequestInfo) -> ASGIApp:
    """Read or write the conditions Approved and Denied; all else of what was sent is left as it was."""
    return await single_object.answer(
        registry, request, found._replace(kind=as_approved_at(registry.now())), _VERBS[request.method]
    )

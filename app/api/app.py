"""The FastAPI application of one API process: its lifespan, middleware, routers and exception handlers.

`app.api.serve` makes it of an open store and runs it in uvicorn. Endpoints of our own are FastAPI's (`app.api.routers`);
Kubernetes' paths are one ASGI application behind the same middleware. Nothing here is global.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from app.api.audit.annotations import annotate_refusal
from app.api.audit.auditor import Audit, Auditor
from app.api.auth.authenticator import Authenticator, IdentityProvider
from app.api.auth.client_certificates import ClientCertificates
from app.api.auth.tokens import StoredTokens
from app.api.dependencies import current_user, require_path
from app.api.direct_route import DirectMiddleware
from app.api.documents import Documents
from app.api.http import errors
from app.api.http.fd_exhaustion import FileDescriptorWatch
from app.api.middleware import NODES, KubernetesMiddleware, RequestMiddleware, StopMiddleware
from app.api.priority_and_fairness import Fairness
from app.api.request_metrics import RequestMetrics
from app.api.resources import version
from app.api.resources.kubernetes import Kubernetes
from app.api.routers import agents, docs, ui
from app.api.streams.agent_calls import Calls, Origin
from app.api.streams.revocation import Revocations
from app.machinery.errors import ApiError
from app.registry.bootstrap import bootstrap
from app.registry.history_loss import reporting_losses
from app.registry.periodic_task import run_periodically
from app.registry.verbs.objects import Registry


class Application(FastAPI):
    """FastAPI behind `front`, our middleware, which answers for Kubernetes' paths: those never pass FastAPI's own layers."""

    front: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["app"] = self
        await self.front(scope, receive, send)

    async def answer_itself(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer by FastAPI's routes and handlers, behind `front`."""
        await super().__call__(scope, receive, send)


def create_app(
    registry: Registry,
    origin: Origin | None = None,
    authority: Callable[[], str] = str,
    provider: IdentityProvider | None = None,
    audit: Audit | None = None,
    require_node_certificates: bool = False,
    take_in_tokens: Callable[[], Awaitable[None]] | None = None,
) -> Application:
    """The application of one API process.

    origin:    where others reach it.
    authority: certificates that clients trust, PEM.
    provider:  who issues ID tokens besides this API; none without OIDC.
    audit:     what makes events of requests; None: audit is off.
    require_node_certificates: refuse agents that show no client certificate of their node.
    take_in_tokens: accepts tokens that files have got meanwhile, before one is looked up.
    """
    authenticator = Authenticator(
        StoredTokens(registry, take_in_tokens),
        time.monotonic,
        provider=provider,
        now=registry.now,
        certificate_user=ClientCertificates(authority, registry.now).user,
    )
    authenticator.requires_node_certificates = require_node_certificates
    metrics = RequestMetrics(registry.metrics)
    kubernetes = Kubernetes(
        registry, authenticator, Documents(registry, authenticator).answer, metrics, Fairness(registry.metrics)
    )
    app = Application(
        title=docs.TITLE,
        version=version.jobplane_version(),
        lifespan=lifespan,
        # Not by include_router, which makes each route once more, for every application: as much work as a third of the imports.
        routes=[route for router in (*docs.DOCUMENTED, docs.router, ui.router) for route in router.routes],
        middleware=[
            Middleware(DirectMiddleware, NODES, agents.router.routes),
            # A handler for Exception would be called by Starlette's outermost middleware, which raises the error once more.
            Middleware(ExceptionMiddleware, handlers={Exception: as_status}),
        ],
        exception_handlers={HTTPException: refuse_unrouted, RequestValidationError: as_status, ApiError: as_status},
        redirect_slashes=False,
        openapi_url=None,  # `app.api.routers.docs` serves it, to users who may see it
        # Otherwise each request asks whether an OpenTelemetry provider is set, for 5 % of what a GET takes.
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    front = StopMiddleware(KubernetesMiddleware(app.answer_itself, kubernetes))
    app.front = RequestMiddleware(front, metrics, Auditor(audit, registry.metrics) if audit else None)
    app.state.registry, app.state.authenticator, app.state.authority = registry, authenticator, authority
    app.state.audit = audit
    app.state.streams = set()  # tasks of the open streams: the server cancels them before it stops
    app.state.stopping = asyncio.Event()  # set when the server has been told to stop: it is not ready any more
    app.state.revocations = _revocations(registry)
    app.state.calls = Calls(registry.agent_calls, origin or Origin())
    return app


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Create the objects that must exist. While serving, write the audit log, report a lack of file descriptors and losses of
    history.
    """
    registry: Registry = app.state.registry
    await bootstrap(registry)
    watching = asyncio.create_task(run_periodically(FileDescriptorWatch(), registry.now))
    try:
        async with reporting_losses(registry), _writing_audit(app.state.audit):
            yield
    finally:
        watching.cancel()


@asynccontextmanager
async def _writing_audit(audit: Audit | None) -> AsyncIterator[None]:
    if audit is None:
        yield
        return
    writing = asyncio.create_task(audit.buffer.run())
    try:
        yield
    finally:
        writing.cancel()
        await asyncio.wait((writing,))


async def as_status(request: Request, error: Exception) -> Response:
    """Exception handler: answers with the Status of the error."""
    annotate_refusal(request.scope, error)
    return errors.response(error)


async def refuse_unrouted(request: Request, error: Exception) -> Response:
    """Exception handler: refuses a path or method without a route, by 401 or 403 before 404 or 405, as Kubernetes does."""
    try:
        await require_path(request, await current_user(request))
    except Exception as refusal:
        return errors.response(refusal)
    is_method = isinstance(error, HTTPException) and error.status_code == 405
    return errors.response(errors.no_such_method() if is_method else errors.no_such_path())


def _revocations(registry: Registry) -> Revocations:
    async def ended(digests: Collection[bytes]) -> Collection[bytes]:
        return await registry.tokens.ended(digests, registry.now())

    return Revocations(ended, registry.policy.rights.policies, registry.now)

"""Dependencies of our own endpoints: the registry, the user who asks, and rights. FastAPI resolves them, in order, before it
calls an endpoint of `app.api.routers`: first those of the router, then the route's, then the parameters from left to right.

All are coroutines, because FastAPI runs a plain function in a thread.
"""

from typing import Annotated

from fastapi import Depends, Path
from starlette.requests import Request

from app.api.audit.auditor import note_action
from app.api.auth import impersonation
from app.api.auth.authenticator import Action, User, check, check_path, path_refusal
from app.api.streams.revocation import StreamAccess
from app.registry.admission.requester import REQUESTER
from app.registry.verbs.objects import Registry


async def registry(request: Request) -> Registry:
    """The registry of the application."""
    found: Registry = request.app.state.registry
    return found


async def current_user(request: Request) -> User:
    """The user of the request, impersonation included. 401 or 403; 400 for a NUL in the path or query."""
    state = request.app.state
    user = await impersonation.user_of(state.registry, state.authenticator, request)
    REQUESTER.set(user)
    return user


RegistryDep = Annotated[Registry, Depends(registry)]
CurrentUser = Annotated[User, Depends(current_user)]


async def authorize(request: Request, user: User, action: Action) -> None:
    """403 unless the user may. Audit gets to know what the request is about, and why it is allowed."""
    note_action(request.scope, action, "v1")
    request.scope["grant"] = await check(request.app.state.registry, user, action)


async def require_path(request: Request, user: CurrentUser) -> None:
    """403 unless the user may do this with the path, which is no resource: administrators, and users by a ClusterRole."""
    path = request.scope["path"]
    request.scope["grant"] = await check_path(request.app.state.registry, user, request.method.lower(), path)


class Requires:
    """Dependency: 403 unless the user may do `verb` with a resource of `group`, of the name that the path gives, if any."""

    def __init__(self, verb: str, group: str, resource: str) -> None:
        self._verb, self._group, self._resource = verb, group, resource

    async def __call__(self, request: Request, user: CurrentUser) -> None:
        action = Action(self._verb, self._group, self._resource, name=request.path_params.get("name", ""))
        await authorize(request, user, action)


class Nodes:
    """The nodes that a request speaks for: the one that its path names, or for `-` all of its user's."""

    def __init__(self, user: User, name: str) -> None:
        self.user, self.name = user, name

    def includes(self, node: str) -> bool:
        return self.user.is_node(node) if self.name == "-" else node == self.name


async def require_node(
    request: Request,
    user: CurrentUser,
    node: Annotated[str, Path(description="A node that the token speaks for, or - for all of its nodes.")],
) -> Nodes:
    """The nodes that the path means. 403 unless the user speaks for them, as an agent does for its own."""
    if not (user.is_node(node) or (node == "-" and user.nodes)):
        raise path_refusal(user, request.method.lower(), request.scope["path"])
    return Nodes(user, node)


RequiredNodes = Annotated[Nodes, Depends(require_node)]


async def stream_claim(request: Request, user: CurrentUser) -> None:
    """Lets a stream go on only while its agent's token is good, or its holder may act as that agent."""
    credential: impersonation.Credential = request.state.credential
    state = request.app.state

    async def judge() -> None:
        await impersonation.impersonate(state.registry, credential.holder, request.headers)

    holder = credential.holder
    request.state.stream_access = StreamAccess(credential.digest, None if user is holder else judge, holder.expires_at)

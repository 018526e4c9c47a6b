"""Impersonation: the user of a request is the token's, or another that the Impersonate- headers name (`kubectl --as`).

Every application under /api and /apis calls `user_of` before it authorizes. Of a header that is repeated the first value
counts, but for groups and extra fields, of which all do.
"""

from dataclasses import dataclass
from urllib.parse import unquote

from starlette.datastructures import Headers
from starlette.requests import Request

from app.api.auth.authenticator import (
    AUTHENTICATED,
    UNAUTHENTICATED,
    Action,
    Authenticator,
    User,
    account_of,
    account_user,
    bearer,
    check,
    digest_of,
)
from app.api.http import websocket
from app.api.http.connection import PEER
from app.kinds.auth.authentication import GROUP
from app.machinery.errors import bad_request
from app.registry.verbs.objects import Registry


@dataclass(slots=True, repr=False)  # one for each request: frozen takes twice the time
class Credential:
    """The token of a request, and the user that it stands for, whomever that one acts as."""

    authorization: str | None
    holder: User

    @property
    def digest(self) -> bytes:
        return bytes.fromhex(digest_of(bearer(self.authorization) or ""))


ANONYMOUS = "system:anonymous"
_PREFIX = b"impersonate-"
_USER, _UID, _GROUP, _EXTRA = "impersonate-user", "impersonate-uid", "impersonate-group", "impersonate-extra-"


async def user_of(registry: Registry, authenticator: Authenticator, request: Request) -> User:
    """The user to authorize the request as, also in `request.state.user`; `request.state.credential` tells by which token.

    401 or 403; 400 for a path or query with a NUL, which Postgres cannot store.
    """
    authorization = websocket.authorization(request)
    if authorization is None and (peer := request.scope.get("state", {}).get(PEER)) is not None:
        known = authenticator.certificate_user(peer)
    else:
        known = await authenticator.user(authorization)
        if authenticator.requires_node_certificates:
            authenticator.check_node_certificate(known, request.scope["state"].get(PEER), request.scope["path"])
    state = request.scope.setdefault("state", {})  # without `request.state`, which is made anew for every use
    state["credential"] = Credential(authorization, known)
    is_plain = not [1 for name, _ in request.scope["headers"] if name.startswith(_PREFIX)]  # `any` takes twice the time
    user = state["user"] = known if is_plain else await impersonate(registry, known, request.headers)
    query = request.scope["query_string"]
    if "\0" in request.scope["path"] or (query and (b"%00" in query or b"\0" in query)):
        raise bad_request("a path or parameter may not contain a NUL character")
    return user


async def impersonate(registry: Registry, user: User, headers: Headers) -> User:
    """The user to authorize the request as: its own, or the one that it impersonates. 403 if it may not."""
    name, groups, uid, extra = headers.get(_USER, ""), headers.getlist(_GROUP), headers.get(_UID, ""), _extra(headers)
    if not name:
        if groups or uid or extra:
            raise bad_request("requested groups, a uid or extra fields without impersonating a user")
        return user
    account = account_of(name)
    if account is not None:
        await check(registry, user, Action("impersonate", "", "serviceaccounts", "", *account))
    else:
        await check(registry, user, Action("impersonate", "", "users", name=name))
    for group in groups:
        await check(registry, user, Action("impersonate", "", "groups", name=group))
    for key, values in extra.items():
        for value in values:
            await check(registry, user, Action("impersonate", GROUP, "userextras", key, name=value))
    if uid:
        await check(registry, user, Action("impersonate", GROUP, "uids", name=uid))
    own = account_user(*account).groups if account and not groups else tuple(groups)
    return User(name=name, groups=_with_default(name, own), uid=uid, extra=extra)


def _extra(headers: Headers) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for name, value in headers.items():
        if name.startswith(_EXTRA):
            key = unquote(name.removeprefix(_EXTRA)).lower()
            found[key] = (*found.get(key, ()), value)
    return found


def _with_default(name: str, groups: tuple[str, ...]) -> tuple[str, ...]:
    """Groups with system:authenticated or system:unauthenticated, unless one of them is given."""
    if AUTHENTICATED in groups or UNAUTHENTICATED in groups:
        return groups
    return (*groups, UNAUTHENTICATED if name == ANONYMOUS else AUTHENTICATED)

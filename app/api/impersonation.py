"""Acting as somebody else: what the Impersonate- headers ask for, to whoever may. kubectl sends them for `--as`."""

from urllib.parse import unquote

from starlette.datastructures import Headers

from app.api.auth import AUTHENTICATED, UNAUTHENTICATED, Action, User, account_of, account_user, check
from app.kinds.authentication import GROUP
from app.kinds.errors import bad_request
from app.registry.objects import Registry

ANONYMOUS = "system:anonymous"
_USER, _UID, _GROUP, _EXTRA = "impersonate-user", "impersonate-uid", "impersonate-group", "impersonate-extra-"


async def acting(registry: Registry, user: User, headers: Headers) -> User:
    """Whoever the request is to be judged as: the user, or another one that it names."""
    if not any(name.startswith(b"impersonate-") for name, _ in headers.raw):
        return user
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
    names = dict.fromkeys(name for name in headers if name.startswith(_EXTRA))
    return {unquote(name.removeprefix(_EXTRA)).lower(): tuple(headers.getlist(name)) for name in names}


def _with_default(name: str, groups: tuple[str, ...]) -> tuple[str, ...]:
    """Everybody is known or not known, unless the request says which."""
    if AUTHENTICATED in groups or UNAUTHENTICATED in groups:
        return groups
    return (*groups, UNAUTHENTICATED if name == ANONYMOUS else AUTHENTICATED)

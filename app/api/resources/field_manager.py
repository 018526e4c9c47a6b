"""Field manager of a write: the parameter fieldManager, or the program in the User-Agent. Called by all write verbs."""

from starlette.requests import Request

from app.api.http.content import body_size
from app.api.http.headers import header_of
from app.api.http.query import WriteOptions
from app.machinery.apply.managed_fields import FieldManager
from app.machinery.meta.metadata_validation import MANAGER_LIMIT
from app.registry.verbs.objects import Registry
from app.registry.verbs.versions import UpdateOptions


def writer(registry: Registry, request: Request, options: WriteOptions, subresource: str = "") -> FieldManager:
    """Return the field manager of a create, update or patch."""
    name = options.field_manager or _program(header_of(request.scope, b"user-agent") or "")
    return FieldManager(name, registry.now(), subresource)


def edit_options(request: Request, writer: FieldManager, options: WriteOptions, uid: str = "") -> UpdateOptions:
    """The options of an update or patch; `uid` is of the object that an update means."""
    is_status = writer.subresource == "status"
    return UpdateOptions(status=is_status, by=writer, uid=uid, dry_run=options.is_dry_run, size=body_size(request))


def _program(user_agent: str) -> str:
    """Return `kubectl` for `kubectl/v1.33.1 (linux/amd64)`: its printable characters, at most MANAGER_LIMIT bytes."""
    name = user_agent.partition("/")[0]
    if len(name) <= MANAGER_LIMIT and name.isascii() and name.isprintable():
        return name
    name = "".join(filter(str.isprintable, name))
    return name.encode()[:MANAGER_LIMIT].decode(errors="ignore")

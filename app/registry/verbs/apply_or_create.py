"""Apply or create: applies to an object that may or may not exist yet. The API's server-side apply goes through here."""

from collections.abc import Awaitable, Callable

from app.machinery import errors
from app.machinery.base import Kind, Object
from app.machinery.errors import ApiError
from app.registry import offload
from app.registry.verbs.objects import Answer, Registry, create, edit
from app.registry.verbs.versions import UpdateOptions

_TRIES = 8
Change = Callable[[Object | None], Object]


async def apply(
    registry: Registry,
    kind: Kind,
    key: tuple[str, str],
    change: Change,
    options: UpdateOptions,
    may_create: Callable[[Object], Awaitable[None]],
) -> tuple[Answer, bool]:
    """Return what `change` makes of the object at (namespace, name), or of none; and whether it is new."""
    namespace, name = key
    for _ in range(_TRIES):
        try:
            return await edit(registry, kind, namespace, name, change, options), False
        except ApiError as error:
            if error.reason != "NotFound" or (options.by and options.by.subresource):
                raise
        made = await offload.run(options.size, change, None)
        await may_create(made)
        try:
            created = await create(
                registry, kind, namespace, made, by=options.by, dry_run=options.dry_run, size=options.size
            )
            return created, True
        except ApiError as error:
            if error.reason != "AlreadyExists":  # else somebody was quicker: it is applied to theirs
                raise
    raise errors.conflict(kind.resource, name)

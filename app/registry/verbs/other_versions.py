"""Other versions: what a write changes, as managers see it that own fields in another version of a kind that a webhook converts.

Called by `objects` for updates, and by the API before a server-side apply. Other kinds cost one comparison.
"""

from collections.abc import Sequence

from app.machinery.apply.field_ownership import Comparison
from app.machinery.apply.managed_fields import FieldManager, OtherVersions, compare_objects
from app.machinery.base import Kind, Object
from app.machinery.object_codec import decode_object, encode_object
from app.registry import offload
from app.registry.codec import type_of
from app.registry.registry import Registry

_NONE: OtherVersions = {}


async def compare_in_other_versions(
    registry: Registry, kind: Kind, old: Object, new: Object, by: FieldManager | None
) -> OtherVersions:
    """Compare two versions of an object in each served version in which somebody else owns fields of it."""
    if kind.conversion is None or by is None:
        return _NONE
    owned = {entry.api_version for entry in old.metadata.managed_fields or ()} - {kind.api_version}
    if not owned:
        return _NONE
    bodies = [encode_object(old), encode_object(new)]
    if not any(await offload.run(sum(map(len, bodies)), compare_objects, kind, old, new, by.subresource)):
        return _NONE
    table = await registry.kinds.table()
    versions = [each for each in table.versions(kind) if each.api_version in owned]
    return {each.api_version: await _compare(registry, each, bodies, by.subresource) for each in versions}


async def _compare(registry: Registry, kind: Kind, bodies: Sequence[bytes], subresource: str) -> Comparison:
    converted = await registry.converter.convert(kind, bodies)
    return await offload.run(sum(map(len, converted)), _compare_bodies, kind, converted, subresource)


def _compare_bodies(kind: Kind, bodies: Sequence[bytes], subresource: str) -> Comparison:
    old, new = (decode_object(body, type_of(kind)) for body in bodies)
    return compare_objects(kind, old, new, subresource)

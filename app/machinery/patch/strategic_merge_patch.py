"""Strategic merge patches on plain documents: merge patches that merge lists by key (apimachinery's `strategicpatch`).

The API's PATCH calls `apply_strategic_merge_patch`; kubectl apply, edit, label, cordon and the Python client send such
patches. The structs declare patch strategy and merge key (`at(..., patch_key=, patch=)`). Document and patch are never
changed. Unknown fields are merged as maps; their lists are replaced.
"""

from collections import deque
from collections.abc import Iterable
from typing import Any

from app.machinery.errors import ApiError, bad_request, format_value
from app.machinery.patch.json_patch import not_an_object_error, patch_error
from app.machinery.shape import ANY, Field, Shape, shape_of

Doc = dict[str, Any]

DIRECTIVE = "$patch"
RETAIN_KEYS = "$retainKeys"
SET_ELEMENT_ORDER = "$setElementOrder/"
DELETE_FROM_PRIMITIVE_LIST = "$deleteFromPrimitiveList/"

_UNKNOWN = Field("", "", ANY)


def apply_strategic_merge_patch(doc: Doc, patch: Any, type_: type) -> Doc:
    """Return the document with the patch merged in by the strategies of the struct. 400 for a malformed patch, else 422."""
    if not isinstance(patch, dict):
        raise not_an_object_error(patch)
    try:
        return _merge_map(doc, patch, shape_of(type_))
    except RecursionError:
        raise patch_error("the document nests too deep") from None


def _merge_map(doc: Doc, patch: Doc, shape: Shape) -> Doc:
    if DIRECTIVE in patch:
        return _apply_directive(doc, patch, shape)
    result = _apply_retain_keys(doc, patch)
    for name in dict.fromkeys(
        key.removeprefix(SET_ELEMENT_ORDER).removeprefix(DELETE_FROM_PRIMITIVE_LIST)
        for key in patch
        if key != RETAIN_KEYS
    ):
        _merge_field(result, name, patch, shape.fields.get(name, _unknown_field(shape)))
    return result


def _unknown_field(shape: Shape) -> Field:
    """Return the field for an undeclared key: the values of maps have a shape, others have none."""
    return Field("", "", shape.item) if shape.item else _UNKNOWN


def _apply_directive(doc: Doc, patch: Doc, shape: Shape) -> Doc:
    rest = {key: value for key, value in patch.items() if key != DIRECTIVE}
    match patch[DIRECTIVE]:
        case "replace":
            return _strip_map_directives(rest)
        case "delete":
            return {}
        case "merge":
            return _merge_map(doc, rest, shape)
    raise _unknown_directive(patch)


def _apply_retain_keys(doc: Doc, patch: Doc) -> Doc:
    """Copy the document with the keys that $retainKeys lists; without the directive, with all keys."""
    if RETAIN_KEYS not in patch:
        return dict(doc)
    keys = patch[RETAIN_KEYS]
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise bad_request("invalid patch format of retainKeys")
    retained = set(keys)
    if any(key not in retained and value is not None and not _is_directive(key) for key, value in patch.items()):
        raise bad_request("invalid patch format of retainKeys")
    return {key: value for key, value in doc.items() if key in retained}


def _is_directive(key: str) -> bool:
    return key in (DIRECTIVE, RETAIN_KEYS) or key.startswith((SET_ELEMENT_ORDER, DELETE_FROM_PRIMITIVE_LIST))


def _merge_field(result: Doc, name: str, patch: Doc, field: Field) -> None:
    """Apply to one field $deleteFromPrimitiveList, its value in the patch, and $setElementOrder."""
    before = result.get(name)
    if DELETE_FROM_PRIMITIVE_LIST + name in patch:
        _delete_primitives(result, name, patch[DELETE_FROM_PRIMITIVE_LIST + name])
    if name in patch:
        _merge_value(result, name, patch[name], field)
    if SET_ELEMENT_ORDER + name in patch and name in result:
        result[name] = _apply_set_element_order(
            result[name], patch[SET_ELEMENT_ORDER + name], before, patch.get(name), field.key
        )


def _delete_primitives(result: Doc, name: str, removed: Any) -> None:
    if not isinstance(removed, list):
        raise bad_request("invalid patch format of primitive list")
    if isinstance(result.get(name), list):
        gone = set(map(format_value, removed))
        result[name] = [each for each in result[name] if format_value(each) not in gone]


def _merge_value(result: Doc, name: str, value: Any, field: Field) -> None:
    before = result.get(name)
    if value is None:
        result.pop(name, None)
    elif isinstance(value, dict) and isinstance(before, dict) and "replace" not in field.strategies:
        result[name] = _merge_map(before, value, field.shape)
    elif isinstance(value, list) and isinstance(before, list) and "merge" in field.strategies:
        result[name] = _merge_list(before, value, field)
    elif _is_deletion(value):
        result.pop(name, None)
    else:
        result[name] = _strip_directives(value)


def _is_deletion(value: Any) -> bool:
    return isinstance(value, dict) and value.get(DIRECTIVE) == "delete"


def _strip_directives(value: Any) -> Any:
    """Return a new value without nulls and directives."""
    if isinstance(value, dict):
        return _strip_map_directives(value)
    return (
        [_strip_directives(each) for each in value if not _is_list_directive(each)]
        if isinstance(value, list)
        else value
    )


def _strip_map_directives(value: Doc) -> Doc:
    return {
        key: _strip_directives(each)
        for key, each in value.items()
        if each is not None and not _is_directive(key) and not _is_deletion(each)
    }


def _is_list_directive(element: Any) -> bool:
    """Return whether an element is only a directive for its list ($patch: delete or replace)."""
    return isinstance(element, dict) and element.get(DIRECTIVE, "merge") != "merge"


def _merge_list(before: list[Any], patch: list[Any], field: Field) -> list[Any]:
    if any(isinstance(each, list) for each in (*before, *patch)):
        raise patch_error("lists of lists are not supported")
    if not any(isinstance(each, dict) for each in (*before, *patch)):
        both = {format_value(each): each for each in (*before, *patch)}
        return _normalize_element_order(list(both.values()), patch, before, "")
    if not field.key or not all(isinstance(each, dict) for each in (*before, *patch)):
        raise patch_error(f"cannot merge lists without merge key for {field.shape.go}")
    return _merge_list_by_key(before, patch, field)


def _merge_list_by_key(before: list[Doc], patch: list[Doc], field: Field) -> list[Doc]:
    plain = [each for each in patch if not _is_list_directive(each)]
    special = [each for each in patch if _is_list_directive(each)]
    if any(each[DIRECTIVE] == "replace" for each in special):
        return [_strip_directives(each) for each in plain]
    removed = {_key_to_delete(each, field.key) for each in special}
    kept = [each for each in before if _identity_of(each, field.key) not in removed]
    merged = list(kept)
    indexes = _index_by_identity(kept, field.key)
    for each in plain:
        identity = format_value(_require_merge_key(each, field.key))
        if identity in indexes:
            merged[indexes[identity]] = _merge_map(merged[indexes[identity]], each, field.shape.item or ANY)
        else:
            indexes[identity] = len(merged)
            merged.append(_strip_directives(each))
    return _normalize_element_order(merged, plain, kept, field.key)


def _require_merge_key(element: Any, name: str) -> Any:
    if not isinstance(element, dict) or element.get(name) is None:
        raise bad_request(f"map: {_format_brief(element)} does not contain declared merge key: {name}")
    return element[name]


def _key_to_delete(element: Doc, name: str) -> str:
    if element[DIRECTIVE] != "delete":
        raise _unknown_directive(element)
    return format_value(_require_merge_key(element, name))


def _unknown_directive(patch: Doc) -> ApiError:
    return bad_request(f"unknown patch type: {_format_brief(patch[DIRECTIVE])} in map: {_format_brief(patch)}")


def _format_brief(value: Any) -> str:
    text = format_value(value)
    return text if len(text) <= 200 else f"{text[:200]}..."


def _apply_set_element_order(merged: Any, order: Any, before: Any, patch: Any, key: str) -> list[Any]:
    """Sort by $setElementOrder, which must name all elements of the patch in the patch's order; 400 if not."""
    if not isinstance(order, list) or not isinstance(merged, list):
        raise bad_request("invalid patch format of setElementOrder list")
    given = [_required_identity(each, key) for each in patch or () if not _is_list_directive(each)]
    present = set(given)
    if [identity for identity in (_required_identity(each, key) for each in order) if identity in present] != given:
        listed = f"{_format_brief(patch)}\n doesn't match $setElementOrder list:\n{_format_brief(order)}"
        raise bad_request(f"The order in patch list:\n{listed}\n")
    return _normalize_element_order(merged, order, before if isinstance(before, list) else [], key)


def _required_identity(element: Any, key: str) -> str:
    return format_value(_require_merge_key(element, key) if key else element)


def _normalize_element_order(merged: list[Any], desired: list[Any], live: list[Any], key: str) -> list[Any]:
    """Sort listed elements by `order`; the others keep their position relative to the next listed element."""
    order = _index_by_identity(desired, key)
    old = _index_by_identity(live, key)
    first = sorted(
        (each for each in merged if _identity_of(each, key) in order), key=lambda each: order[_identity_of(each, key)]
    )
    others = deque(each for each in merged if _identity_of(each, key) not in order)
    result = []
    for each in first:
        identity = old.get(_identity_of(each, key), -1)
        while others and old.get(_identity_of(others[0], key), len(live)) < identity:
            result.append(others.popleft())
        result.append(each)
    return [*result, *others]


def _index_by_identity(elements: Iterable[Any], key: str) -> dict[str, int]:
    """Return the index of each element; of equal ones, the first."""
    positions: dict[str, int] = {}
    for index, each in enumerate(elements):
        positions.setdefault(_identity_of(each, key), index)
    return positions


def _identity_of(element: Any, key: str) -> str:
    """Return a hashable identity of an element: its merge key as JSON, so that 1, true and "1" differ."""
    return format_value(element.get(key) if key and isinstance(element, dict) else element)

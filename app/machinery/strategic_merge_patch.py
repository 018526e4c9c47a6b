"""Strategic merge patches on plain documents: merge patches that know which lists are merged, and by which key.

What kubectl apply, edit, label, cordon and the Python client send. The structs say how (`at(..., patch_key=, patch=)`).
The document and the patch are never changed. Fields that no struct knows are merged as maps; their lists are replaced.
"""

from collections import deque
from collections.abc import Iterable
from typing import Any

from app.machinery.errors import ApiError, bad_request, shown
from app.machinery.json_patch import inapplicable, not_an_object
from app.machinery.shape import ANY, Field, Shape, shape_of

Doc = dict[str, Any]

DIRECTIVE = "$patch"
RETAIN = "$retainKeys"
ORDER = "$setElementOrder/"
DELETE = "$deleteFromPrimitiveList/"

_UNKNOWN = Field("", "", ANY)


def strategic_patch(doc: Doc, patch: Any, type_: type) -> Doc:
    """The document with the patch merged in, as objects of this type are merged."""
    if not isinstance(patch, dict):
        raise not_an_object(patch)
    try:
        return _merged(doc, patch, shape_of(type_))
    except RecursionError:
        raise inapplicable("the document nests too deep") from None


def _merged(doc: Doc, patch: Doc, shape: Shape) -> Doc:
    if DIRECTIVE in patch:
        return _directed(doc, patch, shape)
    result = _retained(doc, patch)
    for name in dict.fromkeys(key.removeprefix(ORDER).removeprefix(DELETE) for key in patch if key != RETAIN):
        _merge_field(result, name, patch, shape.fields.get(name, _inner(shape)))
    return result


def _inner(shape: Shape) -> Field:
    """How a key that is no known field is merged: the values of maps have a shape, too."""
    return Field("", "", shape.item) if shape.item else _UNKNOWN


def _directed(doc: Doc, patch: Doc, shape: Shape) -> Doc:
    rest = {key: value for key, value in patch.items() if key != DIRECTIVE}
    match patch[DIRECTIVE]:
        case "replace":
            return _added_map(rest)
        case "delete":
            return {}
        case "merge":
            return _merged(doc, rest, shape)
    raise _unknown_directive(patch)


def _retained(doc: Doc, patch: Doc) -> Doc:
    """A copy of the document with the keys that $retainKeys lists, all keys if there is no such list."""
    if RETAIN not in patch:
        return dict(doc)
    keys = patch[RETAIN]
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise bad_request("invalid patch format of retainKeys")
    retained = set(keys)
    if any(key not in retained and value is not None and not _is_directive(key) for key, value in patch.items()):
        raise bad_request("invalid patch format of retainKeys")
    return {key: value for key, value in doc.items() if key in retained}


def _is_directive(key: str) -> bool:
    return key in (DIRECTIVE, RETAIN) or key.startswith((ORDER, DELETE))


def _merge_field(result: Doc, name: str, patch: Doc, field: Field) -> None:
    """Applies to one field its value in the patch, what is to be deleted from it, and its order."""
    before = result.get(name)
    if DELETE + name in patch:
        _delete_from(result, name, patch[DELETE + name])
    if name in patch:
        _merge_value(result, name, patch[name], field)
    if ORDER + name in patch and name in result:
        result[name] = _ordered(result[name], patch[ORDER + name], before, patch.get(name), field.key)


def _delete_from(result: Doc, name: str, doomed: Any) -> None:
    if not isinstance(doomed, list):
        raise bad_request("invalid patch format of primitive list")
    if isinstance(result.get(name), list):
        gone = set(map(shown, doomed))
        result[name] = [each for each in result[name] if shown(each) not in gone]


def _merge_value(result: Doc, name: str, value: Any, field: Field) -> None:
    before = result.get(name)
    if value is None:
        result.pop(name, None)
    elif isinstance(value, dict) and isinstance(before, dict) and "replace" not in field.strategies:
        result[name] = _merged(before, value, field.shape)
    elif isinstance(value, list) and isinstance(before, list) and "merge" in field.strategies:
        result[name] = _merged_list(before, value, field)
    elif _deletes(value):
        result.pop(name, None)
    else:
        result[name] = _added(value)


def _deletes(value: Any) -> bool:
    return isinstance(value, dict) and value.get(DIRECTIVE) == "delete"


def _added(value: Any) -> Any:
    """What a value comes to where there was none: without nulls and directives."""
    if isinstance(value, dict):
        return _added_map(value)
    return [_added(each) for each in value if not _directs(each)] if isinstance(value, list) else value


def _added_map(value: Doc) -> Doc:
    return {
        key: _added(each)
        for key, each in value.items()
        if each is not None and not _is_directive(key) and not _deletes(each)
    }


def _directs(element: Any) -> bool:
    """True for elements that only say what to do with the list."""
    return isinstance(element, dict) and element.get(DIRECTIVE, "merge") != "merge"


def _merged_list(before: list[Any], patch: list[Any], field: Field) -> list[Any]:
    if any(isinstance(each, list) for each in (*before, *patch)):
        raise inapplicable("lists of lists are not supported")
    if not any(isinstance(each, dict) for each in (*before, *patch)):
        both = {shown(each): each for each in (*before, *patch)}
        return _sorted(list(both.values()), patch, before, "")
    if not field.key or not all(isinstance(each, dict) for each in (*before, *patch)):
        raise inapplicable(f"cannot merge lists without merge key for {field.shape.go}")
    return _merged_by_key(before, patch, field)


def _merged_by_key(before: list[Doc], patch: list[Doc], field: Field) -> list[Doc]:
    plain = [each for each in patch if not _directs(each)]
    special = [each for each in patch if _directs(each)]
    if any(each[DIRECTIVE] == "replace" for each in special):
        return [_added(each) for each in plain]
    doomed = {_deleted(each, field.key) for each in special}
    kept = [each for each in before if _place(each, field.key) not in doomed]
    merged = list(kept)
    places = _positions(kept, field.key)
    for each in plain:
        place = shown(_key(each, field.key))
        if place in places:
            merged[places[place]] = _merged(merged[places[place]], each, field.shape.item or ANY)
        else:
            places[place] = len(merged)
            merged.append(_added(each))
    return _sorted(merged, plain, kept, field.key)


def _key(element: Any, name: str) -> Any:
    if not isinstance(element, dict) or element.get(name) is None:
        raise bad_request(f"map: {_brief(element)} does not contain declared merge key: {name}")
    return element[name]


def _deleted(element: Doc, name: str) -> str:
    if element[DIRECTIVE] != "delete":
        raise _unknown_directive(element)
    return shown(_key(element, name))


def _unknown_directive(patch: Doc) -> ApiError:
    return bad_request(f"unknown patch type: {_brief(patch[DIRECTIVE])} in map: {_brief(patch)}")


def _brief(value: Any) -> str:
    text = shown(value)
    return text if len(text) <= 200 else f"{text[:200]}..."


def _ordered(merged: Any, order: Any, before: Any, patch: Any, key: str) -> list[Any]:
    """In the order of $setElementOrder, which must name all that the patch has, in the same order."""
    if not isinstance(order, list) or not isinstance(merged, list):
        raise bad_request("invalid patch format of setElementOrder list")
    given = [_identity(each, key) for each in patch or () if not _directs(each)]
    present = set(given)
    if [place for place in (_identity(each, key) for each in order) if place in present] != given:
        listed = f"{_brief(patch)}\n doesn't match $setElementOrder list:\n{_brief(order)}"
        raise bad_request(f"The order in patch list:\n{listed}\n")
    return _sorted(merged, order, before if isinstance(before, list) else [], key)


def _identity(element: Any, key: str) -> str:
    return shown(_key(element, key) if key else element)


def _sorted(merged: list[Any], wanted: list[Any], live: list[Any], key: str) -> list[Any]:
    """Elements that are wanted come in the wanted order; the others stay before what they were before."""
    order = _positions(wanted, key)
    old = _positions(live, key)
    first = sorted((each for each in merged if _place(each, key) in order), key=lambda each: order[_place(each, key)])
    others = deque(each for each in merged if _place(each, key) not in order)
    result = []
    for each in first:
        place = old.get(_place(each, key), -1)
        while others and old.get(_place(others[0], key), len(live)) < place:
            result.append(others.popleft())
        result.append(each)
    return [*result, *others]


def _positions(elements: Iterable[Any], key: str) -> dict[str, int]:
    """Where each element is; of equal ones, the first."""
    positions: dict[str, int] = {}
    for index, each in enumerate(elements):
        positions.setdefault(_place(each, key), index)
    return positions


def _place(element: Any, key: str) -> str:
    """What tells an element from others, in a form that a dict can hold: 1, true and "1" differ."""
    return shown(element.get(key) if key and isinstance(element, dict) else element)

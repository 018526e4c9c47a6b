"""Structural schema: the schema of one version of a custom kind, compiled once into a tree of `SchemaNode`.

`completion` prunes and fills defaults along it, `checks` validates, `schema_shape` makes of it what server-side apply looks at.
Compiled when first asked for: the API holds many definitions, and most are rarely used.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from app.machinery.custom.formats import checked_format
from app.machinery.shape import Shape

ABSENT: Any = object()


@dataclass(slots=True, eq=False, repr=False)
class SchemaNode:
    """A part of a schema. `document` is that part as it was written; the rest is what it says.

    types:      JSON types that a value may have; none if any.
    additional: schema of map values; None without one.
    preserves:  unknown fields are kept.
    branches:   anyOf, oneOf, allOf and not, each a keyword and its schemas.
    format:     format that is checked.
    defaults:   those of the properties that have a default.
    has_...:    whether there is any such thing here or below.
    """

    document: Mapping[str, Any]
    types: tuple[str, ...] = ()
    nullable: bool = False
    properties: dict[str, "SchemaNode"] = field(default_factory=dict)
    defaults: tuple[tuple[str, "SchemaNode"], ...] = ()
    additional: "SchemaNode | None" = None
    allows_additional: bool = False
    items: "SchemaNode | None" = None
    preserves: bool = False
    int_or_string: bool = False
    embedded: bool = False
    default: Any = ABSENT
    required: tuple[str, ...] = ()
    list_type: str = "atomic"
    list_keys: tuple[str, ...] = ()
    atomic_map: bool = False
    branches: tuple[tuple[str, tuple["SchemaNode", ...]], ...] = ()
    format: str = ""
    has_rules: bool = False
    has_transition_rules: bool = False  # here or below: they are evaluated even of what did not change
    has_embedded: bool = False
    has_keyed_lists: bool = False


class StructuralSchema:
    """The schema of one version, as a document and, once somebody asks, compiled."""

    def __init__(self, document: Mapping[str, Any] | None) -> None:
        self.document: Mapping[str, Any] = document or {"type": "object", "x-kubernetes-preserve-unknown-fields": True}

    @property
    def is_compiled(self) -> bool:
        """Whether all that is derived of the document is there: for a schema of a megabyte, that takes tenths of a second."""
        return {"root", "shape", "topology", "fits"} <= self.__dict__.keys()

    def compile(self) -> None:
        """Derive it now, in whatever thread this is called."""
        _ = self.root, self.shape, self.topology, self.fits

    @cached_property
    def root(self) -> SchemaNode:
        """The compiled tree. apiVersion, kind and metadata are typed elsewhere, but for what the schema demands of names."""
        return compile_schema(self.document)

    @cached_property
    def fits(self) -> Callable[[Any], bool]:
        """Whether a document fits. It may say no for one that does: then `find_causes` finds none."""
        from app.machinery.custom.checks import has_no_causes
        from app.machinery.custom.quick_check import compile_quick_check

        return compile_quick_check(self.root, has_no_causes)

    @cached_property
    def shape(self) -> Shape:
        """What `shape_of` tells of the kind's type."""
        from app.machinery.custom.schema_shape import shape_of_root  # which is made of this

        return shape_of_root(self.root)

    @cached_property
    def topology(self) -> Any:
        """What `topology_of` tells of the kind's type."""
        from app.machinery.custom.schema_shape import topology_of_root

        return topology_of_root(self.root)


def compile_schema(document: Mapping[str, Any]) -> SchemaNode:
    """Compile a schema, or a part of one. What is malformed in it was refused with its definition."""
    node = SchemaNode(document)
    node.int_or_string = document.get("x-kubernetes-int-or-string") is True
    given = document.get("type")
    node.types = ("integer", "string") if node.int_or_string else (given,) if given else ()
    node.nullable = document.get("nullable") is True
    node.preserves = document.get("x-kubernetes-preserve-unknown-fields") is True
    node.embedded = document.get("x-kubernetes-embedded-resource") is True
    node.default = document["default"] if document.get("default") is not None else ABSENT
    node.required = tuple(document.get("required") or ())
    node.properties = {name: compile_schema(each) for name, each in (document.get("properties") or {}).items()}
    node.defaults = tuple((name, each) for name, each in node.properties.items() if each.default is not ABSENT)
    _compile_items(node, document)
    node.list_type = document.get("x-kubernetes-list-type") or "atomic"
    node.list_keys = tuple(document.get("x-kubernetes-list-map-keys") or ())
    node.atomic_map = document.get("x-kubernetes-map-type") == "atomic"
    node.format = checked_format("" if node.int_or_string else given or "", document.get("format") or "")
    node.branches = tuple(_compile_branches(document))
    _look_below(node)
    return node


def _look_below(node: SchemaNode) -> None:
    """Find out what need not be walked for."""
    below = [each for each in (*node.properties.values(), node.additional, node.items) if each is not None]
    rules = node.document.get("x-kubernetes-validations") or ()
    node.has_rules = bool(rules) or any(each.has_rules for each in below)
    node.has_transition_rules = "oldSelf" in str(rules) or any(each.has_transition_rules for each in below)
    node.has_embedded = node.embedded or any(each.has_embedded for each in below)
    node.has_keyed_lists = node.list_type in ("set", "map") or any(each.has_keyed_lists for each in below)


def _compile_items(node: SchemaNode, document: Mapping[str, Any]) -> None:
    items, additional = document.get("items"), document.get("additionalProperties")
    if isinstance(items, Mapping):
        node.items = compile_schema(items)
    if isinstance(additional, Mapping):
        node.additional = compile_schema(additional)
    node.allows_additional = additional is True or node.additional is not None


def _compile_branches(document: Mapping[str, Any]) -> list[tuple[str, tuple[SchemaNode, ...]]]:
    """The alternatives, in the order in which they are told of."""
    found = [(word, tuple(map(compile_schema, document.get(word) or ()))) for word in ("anyOf", "oneOf", "allOf")]
    if document.get("not") is not None:
        found.append(("not", (compile_schema(document["not"]),)))
    return [(word, parts) for word, parts in found if parts]

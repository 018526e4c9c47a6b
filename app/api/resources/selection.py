"""List options and selectors of a request, parsed once, so that exactly what was authorized is executed.

`kubernetes` reads a `Selection` before it authorizes, and hands it to the verb, which reads no query of its own.
"""

from dataclasses import dataclass

from app.api.http.query import ListOptions, Query, check_list_options, parse_flag, read_list_options
from app.machinery.base import Kind
from app.machinery.errors import ApiError
from app.machinery.selectors import EVERY_FIELD, EVERYTHING, FieldSelector, Selector, parse_fields, parse_labels
from app.registry import Key, SelectorIndex
from app.registry.verbs.lists import Scope


@dataclass(frozen=True)
class Selection:
    """Options and selectors of a collection request. `fault`: the 400 for options that could not be parsed."""

    options: ListOptions = ListOptions()  # noqa: RUF009 - frozen
    labels: Selector = EVERYTHING
    fields: FieldSelector = EVERY_FIELD
    fault: ApiError | None = None

    def check(self) -> None:
        """Raise 400 or 422 for invalid options. Call after authorization, before execution."""
        if self.fault is not None:
            raise self.fault
        check_list_options(self.options)


EVERY_OBJECT = Selection()


def read_selection(query: Query) -> Selection:
    """Read the selection in a query. If it cannot be parsed, it has no selectors, and only `watch` is kept.

    As apiserver's RequestInfo, which is authorized first: a user without the right to list gets 403 instead of 400.
    """
    try:
        options = read_list_options(query)
        return Selection(options, parse_labels(options.label_selector), parse_fields(options.field_selector))
    except ApiError as fault:
        return Selection(ListOptions(watch=parse_flag(query, "watch")), fault=fault)


def scope_of(kind: Kind, namespace: str | None, selection: Selection) -> Scope:
    """Return the registry's scope of a selection; 400 for a field that the kind cannot select on."""
    labels, fields = selection.labels, selection.fields
    if labels is EVERYTHING and fields is EVERY_FIELD:
        return Scope(kind=kind, namespace=namespace)
    fields.check({**kind.fields, **kind.field_aliases})
    fields = fields.renamed(kind.field_aliases)

    name = fields.requirement("metadata.name")
    node = fields.requirement("spec.nodeName") or None

    def matches(key: Key, selector_index: SelectorIndex) -> bool:
        if not labels.matches(selector_index.labels):
            return False
        return fields.matches({**selector_index.fields, "metadata.name": key.name, "metadata.namespace": key.namespace})

    # An agent asks for the pods of its node and nothing else: then looking at the node is all there is to do.
    more = labels is not EVERYTHING or len(fields.requirements) > (name is not None) + (node is not None)
    return Scope(
        kind=kind,
        namespace=namespace,
        name=name,
        node=node,
        matches=matches if more else None,
        labels=labels.wanted() if more else {},
        fields=fields.wanted() if more else {},
    )

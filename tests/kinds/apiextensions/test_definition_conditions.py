"""Names of definitions: which are accepted, and what becomes of those that are taken."""

from datetime import timedelta

import msgspec
from msgspec.structs import replace

from app.kinds.apiextensions.custom_resource_definition import CustomResourceDefinition, prepare
from app.kinds.apiextensions.definition_conditions import is_established, with_names
from tests.api.custom.definitions import definition
from tests.build import NOW


def a_definition(plural: str, kind: str, age: int, **names: object) -> CustomResourceDefinition:
    document = definition(plural, kind)
    document["spec"]["names"] |= names
    made = prepare(msgspec.convert(document, CustomResourceDefinition))
    created = NOW - timedelta(seconds=age)
    return replace(made, metadata=replace(made.metadata, creation_timestamp=created))


def reasons(crd: CustomResourceDefinition) -> dict[str, str]:
    return {each.type: each.reason for each in crd.status.conditions}


def test_a_short_name_is_given_once() -> None:
    first = with_names(a_definition("widgets", "Widget", 2, shortNames=["w"]), [], NOW)
    second = with_names(a_definition("gadgets", "Gadget", 1, shortNames=["w"]), [first], NOW)

    assert reasons(first) == {"NamesAccepted": "NoConflicts", "Established": "InitialNamesAccepted"}
    assert reasons(second) == {"NamesAccepted": "ShortNamesConflict", "Established": "NotAccepted"}
    assert second.status.accepted_names.kind == "Gadget"
    assert second.status.accepted_names.short_names == ()
    assert is_established(with_names(second, [], NOW))


def test_of_two_that_were_accepted_at_once_the_older_keeps_its_names() -> None:
    older, younger = (
        with_names(a_definition(plural, "Widget", age), [], NOW) for plural, age in (("widgets", 2), ("gadgets", 1))
    )

    assert with_names(older, [younger], NOW) == older
    assert reasons(with_names(younger, [older], NOW))["NamesAccepted"] == "ListKindConflict"


def test_a_time_changes_with_the_status_alone() -> None:
    crd = with_names(a_definition("widgets", "Widget", 1), [], NOW)

    assert with_names(crd, [], NOW + timedelta(seconds=5)) == crd

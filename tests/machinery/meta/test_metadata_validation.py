"""Names and metadata: what is refused, and in which words."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as some
from msgspec.structs import replace

from app.machinery import name_validation
from app.machinery.base import ObjectMeta, OwnerReference
from app.machinery.meta.metadata_validation import MOST_CAUSES, validate_metadata, validate_metadata_update

NOW = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
GOOD = ObjectMeta(name="pi", namespace="default", uid="u", creation_timestamp=NOW)
OWNER = OwnerReference(api_version="batch/v1", kind="Job", name="pi", uid="u", controller=True)

LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    "an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
KEY = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)


def said(causes):
    return [f"{cause.field}: {cause.message}" for cause in causes]


def faults(**changes):
    return said(validate_metadata(replace(GOOD, **changes), namespaced=True, name_format="subdomain"))


@pytest.mark.parametrize(
    ("check", "value", "expected"),
    [
        pytest.param(name_validation.dns_label, "a-1", [], id="a label"),
        pytest.param(name_validation.dns_label, "A", [LABEL], id="capitals are no label"),
        pytest.param(name_validation.dns_label, "a.b", ["must not contain dots"], id="dots are no label"),
        pytest.param(name_validation.dns_label, "a" * 64, ["must be no more than 63 characters"], id="a long label"),
        pytest.param(name_validation.dns_label, "a\n", [LABEL], id="a line break at the end"),
        pytest.param(name_validation.dns_subdomain, "a.b-c.d", [], id="a subdomain"),
        pytest.param(name_validation.dns_subdomain, "-a", [SUBDOMAIN], id="a dash in front"),
        pytest.param(
            name_validation.dns_subdomain, "a" * 254, ["must be no more than 253 characters"], id="a long subdomain"
        ),
        pytest.param(name_validation.qualified_name, "x.io/My_key.1", [], id="a key with a prefix"),
        pytest.param(name_validation.qualified_name, "", ["name part must be non-empty", KEY], id="an empty key"),
        pytest.param(name_validation.qualified_name, "/a", ["prefix part must be non-empty"], id="an empty prefix"),
        pytest.param(name_validation.qualified_name, "X/a", [f"prefix part {SUBDOMAIN}"], id="a bad prefix"),
        pytest.param(
            name_validation.qualified_name, "a" * 64, ["name part must be no more than 63 bytes"], id="a long key"
        ),
        pytest.param(name_validation.qualified_name, "a b", [KEY], id="a space in a key"),
        pytest.param(name_validation.label_value, "", [], id="an empty value"),
        pytest.param(name_validation.label_value, "a" * 64, ["must be no more than 63 bytes"], id="a long value"),
        pytest.param(name_validation.env_name, "a b.c-d", [], id="a relaxed variable name"),
        pytest.param(
            name_validation.env_name, "", ["environment variable name must be non-empty"], id="no variable name"
        ),
        pytest.param(name_validation.config_key, "..a", ["must not start with '..'"], id="a key that climbs"),
        pytest.param(name_validation.port_name, "http-2", [], id="a port name"),
        pytest.param(name_validation.port_name, "80", ["must contain at least one letter (a-z)"], id="digits alone"),
        pytest.param(name_validation.port_number, 0, ["must be between 1 and 65535, inclusive"], id="port 0"),
        pytest.param(name_validation.ip_address, "::1", [], id="an IPv6 address"),
        pytest.param(
            name_validation.ip_address,
            "1.2.3",
            ["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"],
            id="no IP",
        ),
    ],
)
def test_names(check, value, expected):
    assert check(value) == expected


def test_a_key_has_one_slash():
    [fault] = name_validation.qualified_name("a/b/c")

    assert fault.startswith("a valid label key must consist of alphanumeric characters")
    assert fault.endswith("with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')")


def test_an_equals_sign_is_no_variable_name():
    assert name_validation.env_name("A=B") == [
        "a valid environment variable name must consist only of printable ASCII characters other than '='"
    ]


@given(some.text(max_size=300))
def test_names_never_raise(value):
    for check in (
        name_validation.dns_label,
        name_validation.dns_subdomain,
        name_validation.qualified_name,
        name_validation.label_value,
        name_validation.env_name,
        name_validation.config_key,
        name_validation.http_header,
        name_validation.port_name,
        name_validation.path_segment,
        name_validation.ip_address,
    ):
        assert isinstance(check(value), list)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({}, [], id="nothing wrong"),
        pytest.param({"name": ""}, ["metadata.name: Required value: name or generateName is required"], id="no name"),
        pytest.param({"name": "Pi"}, [f'metadata.name: Invalid value: "Pi": {SUBDOMAIN}'], id="a bad name"),
        pytest.param({"generate_name": "pi-"}, [], id="a prefix may end in a dash"),
        pytest.param({"namespace": ""}, ["metadata.namespace: Required value"], id="no namespace"),
        pytest.param({"labels": {"a": "b c"}}, 1, id="a bad label value"),
        pytest.param({"labels": {"a b": "c"}}, [f'metadata.labels: Invalid value: "a b": {KEY}'], id="a bad label key"),
        pytest.param({"annotations": {"UPPER": "any text\n"}}, [], id="annotations hold any text"),
        pytest.param(
            {"annotations": {"a": "x" * 2**18}},
            ["metadata.annotations: Too long: may not be more than 262144 bytes"],
            id="too many annotations",
        ),
        pytest.param({"owner_references": (OWNER,)}, [], id="an owner"),
        pytest.param(
            {"owner_references": (replace(OWNER, uid=""),)},
            ["metadata.ownerReferences[0].uid: Required value: must not be empty"],
            id="an owner without uid",
        ),
        pytest.param(
            {"owner_references": (replace(OWNER, uid="u" * 254),)},
            ["metadata.ownerReferences[0].uid: Too long: may not be more than 253 bytes"],
            id="an owner whose uid fits in no index",
        ),
        pytest.param({"owner_references": (OWNER, OWNER)}, 1, id="two controllers"),
        pytest.param({"finalizers": ("batch.kubernetes.io/job-tracking", "orphan")}, [], id="finalizers"),
        pytest.param(
            {"finalizers": ("mine",)},
            [
                'metadata.finalizers[0]: Invalid value: "mine": '
                "name is neither a standard finalizer name nor is it fully qualified"
            ],
            id="a finalizer without domain",
        ),
        pytest.param(
            {"finalizers": ("orphan", "foregroundDeletion")},
            [
                'metadata.finalizers: Invalid value: ["orphan","foregroundDeletion"]: '
                "finalizer orphan and foregroundDeletion cannot be both set"
            ],
            id="two ways to delete",
        ),
    ],
)
def test_metadata(changes, expected):
    found = faults(**changes)

    assert found == expected or len(found) == expected


def test_a_kind_without_namespaces_has_none():
    assert said(validate_metadata(GOOD, namespaced=False, name_format="path")) == [
        "metadata.namespace: Forbidden: not allowed on this type"
    ]


def test_a_hostile_object_is_answered_briefly():
    assert len(faults(labels={f"{number} ": "" for number in range(10_000)})) == MOST_CAUSES


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({}, [], id="nothing changed"),
        pytest.param({"labels": {"a": "b"}}, [], id="labels change"),
        pytest.param({"uid": "", "creation_timestamp": None}, [], id="left out is unchanged"),
        pytest.param({"name": "e"}, ['metadata.name: Invalid value: "e": field is immutable'], id="a new name"),
        pytest.param({"uid": "v"}, ['metadata.uid: Invalid value: "v": field is immutable'], id="a new uid"),
        pytest.param(
            {"deletion_timestamp": NOW},
            ['metadata.deletionTimestamp: Invalid value: "2030-01-02T03:04:05Z": field is immutable'],
            id="deletion has its own verb",
        ),
        pytest.param({"finalizers": ("a/b",)}, [], id="a new finalizer"),
    ],
)
def test_metadata_update(changes, expected):
    assert said(validate_metadata_update(replace(GOOD, **changes), GOOD)) == expected


def test_no_finalizer_is_added_to_what_is_being_deleted():
    old = replace(GOOD, deletion_timestamp=NOW, finalizers=("a/b",))

    assert said(validate_metadata_update(replace(old, finalizers=()), old)) == []
    assert said(validate_metadata_update(replace(old, finalizers=("a/b", "c/d")), old)) == [
        "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, "
        'found new finalizers []string{"c/d"}'
    ]


def test_a_name_that_need_only_fit_in_a_url_fits_in_the_index_too():
    assert name_validation.path_segment("ä" * 512) == []
    assert name_validation.path_segment("ä" * 512 + "a") == ["must be no more than 1024 bytes"]

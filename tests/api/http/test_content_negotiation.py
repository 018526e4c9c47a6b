"""Media types: what clients send, in every order that they send it in."""

import pytest

from app.api.http.content_negotiation import (
    DISCOVERY,
    JSON,
    OBJECT,
    ResponseFormat,
    negotiate_media_type,
    parse_object_content_type,
    parse_patch_content_type,
)
from app.machinery.errors import ApiError

KUBECTL_TABLE = (
    "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"
)
KUBECTL_DISCOVERY = (
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,"
    "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"
)


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        pytest.param(None, JSON, id="no header takes JSON"),
        pytest.param(" ", JSON, id="an empty header takes JSON"),
        pytest.param("*/*", JSON, id="anything is JSON"),
        pytest.param("application/*;q=0.8", JSON, id="any application type is JSON"),
        pytest.param("application/json;stream=watch", JSON, id="parameters that mean nothing here are ignored"),
        pytest.param(KUBECTL_TABLE, ResponseFormat("table", "v1"), id="kubectl get gets a table"),
        pytest.param(
            "application/json;g=meta.k8s.io;v=v1beta1;as=Table", ResponseFormat("table", "v1beta1"), id="in any order"
        ),
        pytest.param(
            "application/json; as = Table ; V=v1;g=meta.k8s.io",
            ResponseFormat("table", "v1"),
            id="whatever the spaces and case",
        ),
        pytest.param(
            KUBECTL_TABLE.replace("application/json", "application/vnd.kubernetes.protobuf", 1),
            ResponseFormat("table", "v1beta1"),
            id="a protobuf table falls through to the JSON table",
        ),
        pytest.param("application/vnd.kubernetes.protobuf,application/json", JSON, id="protobuf falls through to JSON"),
        pytest.param(
            "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
            ResponseFormat("partial-list", "v1"),
            id="metadata clients get bare metadata",
        ),
        pytest.param("application/json;as=Table;v=v9;g=meta.k8s.io,*/*", JSON, id="unknown versions go"),
        pytest.param("*/*;q=0.1,application/json;as=Table;v=v1;g=meta.k8s.io", ResponseFormat("table", "v1"), id="q"),
        pytest.param("text/html;q=x,application/json", JSON, id="a broken q counts as never"),
        pytest.param(KUBECTL_DISCOVERY, JSON, id="discovery forms are not offered for objects"),
    ],
)
def test_the_best_form_of_an_object_is_chosen(header: str | None, expected: ResponseFormat) -> None:
    assert negotiate_media_type(header, OBJECT) == expected


@pytest.mark.parametrize(
    ("header", "version"),
    [
        pytest.param(KUBECTL_DISCOVERY, "v2", id="kubectl 1.33 gets v2"),
        pytest.param(KUBECTL_DISCOVERY.partition(",")[2], "v2beta1", id="kubectl 1.27 gets v2beta1"),
        pytest.param(
            "application/json;v=v2;g=apidiscovery.k8s.io;as=APIGroupDiscoveryList", "v2", id="cloudcoil gets v2"
        ),
    ],
)
def test_aggregated_discovery_names_itself_in_its_content_type(header: str, version: str) -> None:
    found = negotiate_media_type(header, DISCOVERY)

    assert found == ResponseFormat("discovery", version)
    assert found.content_type == f"application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList"


@pytest.mark.parametrize("header", ["application/vnd.kubernetes.protobuf", "text/html", "application/json;q=0"])
def test_what_cannot_be_given_is_refused(header: str) -> None:
    with pytest.raises(ApiError) as refused:
        negotiate_media_type(header)

    assert (refused.value.code, refused.value.reason) == (406, "NotAcceptable")
    assert refused.value.message == "only the following media types are accepted: application/json"


@pytest.mark.parametrize(
    ("content_type", "form"),
    [
        pytest.param(None, "json", id="missing is JSON"),
        pytest.param("application/json; charset=UTF-8", "json", id="a charset changes nothing"),
        pytest.param("application/yaml", "yaml", id="yaml"),
        pytest.param("application/vnd.kubernetes.protobuf", "protobuf", id="protobuf"),
    ],
)
def test_object_bodies(content_type: str | None, form: str) -> None:
    assert parse_object_content_type(content_type) == form


@pytest.mark.parametrize("name", ["json-patch", "merge-patch", "strategic-merge-patch"])
def test_patch_bodies(name: str) -> None:
    assert parse_patch_content_type(f"application/{name}+json") == name
    assert parse_patch_content_type("application/apply-patch+yaml") == "apply-patch"


def test_an_unknown_body_names_what_would_be_accepted() -> None:
    with pytest.raises(ApiError) as refused:
        parse_object_content_type("text/plain")

    assert (refused.value.code, refused.value.reason) == (415, "UnsupportedMediaType")
    assert refused.value.message == (
        "the body of the request was in an unknown format - accepted media types include: "
        "application/json, application/yaml, application/vnd.kubernetes.protobuf"
    )


@pytest.mark.parametrize("content_type", [None, "application/json"])
def test_a_patch_must_say_which_patch_it_is(content_type: str | None) -> None:
    with pytest.raises(ApiError, match=r"application/json-patch\+json") as refused:
        parse_patch_content_type(content_type)

    assert refused.value.code == 415


def test_a_long_header_is_refused() -> None:
    with pytest.raises(ApiError) as refused:
        negotiate_media_type("application/json," + "a," * 5_000)
    assert refused.value.code == 406

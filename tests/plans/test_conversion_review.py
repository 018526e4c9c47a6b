"""ConversionReview: what a webhook is sent, and which of its responses count."""

from typing import Any

import msgspec
import pytest

from app.plans.conversion_review import ConversionError, Wanted, choose_review_version, encode_review, read_response

WANTED = Wanted("v1", "u", "g.io/v2")
METADATA = {"name": "a", "namespace": "n", "uid": "1", "labels": {"a": "b"}, "finalizers": ["f"]}
FAILED = "conversion webhook for g.io/v1, Kind=K "


def original(**metadata: Any) -> bytes:
    return msgspec.json.encode({"apiVersion": "g.io/v1", "kind": "K", "metadata": METADATA | metadata, "spec": {}})


def converted(**fields: Any) -> dict[str, Any]:
    return {"apiVersion": "g.io/v2", "kind": "K", "metadata": METADATA, "spec": {"new": 1}, **fields}


def response(*objects: Any, **fields: Any) -> bytes:
    answer = {"uid": "u", "result": {"status": "Success"}, "convertedObjects": objects, **fields}
    return msgspec.json.encode(
        {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": answer}
    )


def test_a_review_asks_for_all_objects_at_once() -> None:
    review = msgspec.json.decode(encode_review(WANTED, [original(), original(name="b")]))

    assert (review["apiVersion"], review["kind"]) == ("apiextensions.k8s.io/v1", "ConversionReview")
    assert (review["request"]["uid"], review["request"]["desiredAPIVersion"]) == ("u", "g.io/v2")
    assert [each["metadata"]["name"] for each in review["request"]["objects"]] == ["a", "b"]


def test_the_first_version_that_is_known_is_sent() -> None:
    assert choose_review_version(["v9", "v1beta1", "v1"]) == "v1beta1"
    with pytest.raises(ConversionError, match="no supported conversion review versions"):
        choose_review_version(["v9"])


def test_labels_and_annotations_are_the_webhooks_all_other_metadata_the_originals() -> None:
    metadata = {**METADATA, "labels": None, "annotations": {"x": "y"}, "finalizers": [], "generation": 9}

    (made,) = read_response(WANTED, [original()], response(converted(metadata=metadata)))

    expected = {"name": "a", "namespace": "n", "uid": "1", "finalizers": ["f"], "annotations": {"x": "y"}}
    assert made["metadata"] == expected
    assert made["spec"] == {"new": 1}


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (response(), "returned 0 objects, expected 1"),
        (response(converted(), converted()), "returned 2 objects, expected 1"),
        (response(uid="other"), 'failed: expected response.uid="u", got "other"'),
        (response(result={"status": "Failure", "message": "no"}), "failed: no"),
        (response(result={}), "failed: response.result.status was '', not 'Success'"),
        (b"{}", "failed: expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got , Kind="),
        (
            b'{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview"}',
            "failed: no response provided",
        ),
        (response(1), "returned invalid object: couldn't decode it: Expected `object`, got `int`"),
        (
            response(converted(apiVersion="g.io/v3")),
            "returned invalid object at index 0: invalid groupVersion (expected g.io/v2, received g.io/v3)",
        ),
        (
            response(converted(kind="L")),
            "returned invalid object at index 0: invalid kind (expected K, received L)",
        ),
        (
            response(converted(metadata=METADATA | {"name": "b"})),
            "returned invalid object: must have the same name: a != b",
        ),
        (
            response(converted(metadata=METADATA | {"uid": "2"})),
            "returned invalid object: must have the same UID: 1 != 2",
        ),
        (
            response(converted(metadata=METADATA | {"labels": {"a": 1}})),
            "returned invalid metadata: metadata.labels[a] must be a string, but is int64 in converted object",
        ),
        (
            response(converted(metadata=METADATA | {"annotations": []})),
            "returned invalid metadata: invalid metadata.annotations of type []interface {} in converted object",
        ),
    ],
)
def test_a_response_that_does_not_fit_is_an_error_in_kubernetes_words(body: bytes, text: str) -> None:
    with pytest.raises(ConversionError) as refused:
        read_response(WANTED, [original()], body)

    assert str(refused.value) == FAILED + text


def test_of_several_objects_the_error_names_the_one() -> None:
    with pytest.raises(ConversionError) as refused:
        read_response(WANTED, [original(), original(name="b")], response(converted(), converted()))

    text = "returned invalid converted object at index 1: must have the same name: b != a"
    assert str(refused.value) == FAILED + text


def test_v1beta1_is_not_asked_for_its_uid() -> None:
    wanted = WANTED._replace(review_version="v1beta1")
    body = msgspec.json.encode({"response": {"result": {"status": "Success"}, "convertedObjects": [converted()]}})

    assert read_response(wanted, [original()], body)

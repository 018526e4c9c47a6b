"""Request paths of built-in kinds, which are parsed once."""

import pytest

from app.api.resources.routes import parse_built_in, parse_request_info

LONG = "n" * 300


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/namespaces/team/pods/a/log",
        "/apis/batch/v1/jobs",
        "/apis/batch/v1/namespaces/team/jobs/",
        "/apis/batch/v1/namespaces/team/jobs/a/b/c",
        "/apis/example.org/v1/things",
        f"/apis/batch/v1/namespaces/team/jobs/{LONG}",
    ],
)
def test_a_path_means_the_same_however_often_it_is_asked_for(path: str) -> None:
    assert parse_built_in(path) == parse_built_in(path) == parse_request_info(path)


def test_a_path_that_is_longer_than_what_is_remembered_is_parsed() -> None:
    found = parse_built_in(f"/apis/batch/v1/namespaces/team/jobs/{LONG}")
    assert found is not None
    assert (found.kind.plural, found.namespace, found.name) == ("jobs", "team", LONG)

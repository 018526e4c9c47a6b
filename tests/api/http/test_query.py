"""Options: what clients put into queries and DELETE bodies, and the refusals that they match on."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from app.api.http.query import (
    ListOptions,
    Query,
    check_list_options,
    create_options,
    delete_options,
    parse_boolean,
    parse_flag,
    parse_number,
    patch_options,
    read_list_options,
    update_options,
)
from app.machinery.errors import ApiError


def list_options(query: Query) -> ListOptions:
    """Read and checked, as for a request that is authorized."""
    options = read_list_options(query)
    check_list_options(options)
    return options


@pytest.mark.parametrize("value", ["true", "True", "1", "yes", ""])
def test_true(value: str) -> None:
    assert parse_boolean(value)


@pytest.mark.parametrize("value", ["false", "False", "0"])
def test_false(value: str) -> None:
    assert not parse_boolean(value)


def test_a_list_as_kubectl_asks_for_it() -> None:
    options = list_options([("labelSelector", "app in (a,b)"), ("limit", "500"), ("continue", "abc"), ("pretty", "1")])

    assert (options.label_selector, options.limit, options.continue_) == ("app in (a,b)", 500, "abc")
    assert (options.watch, options.revision, options.send_initial_events) == (False, None, None)


def test_a_watch_as_a_python_client_asks_for_it() -> None:
    options = list_options([("watch", "True"), ("resourceVersion", "17"), ("timeoutSeconds", "60")])

    assert (options.watch, options.revision, options.timeout_seconds) == (True, 17, 60)


def test_a_streamed_list() -> None:
    query = [("watch", "1"), ("sendInitialEvents", "true"), ("resourceVersionMatch", "NotOlderThan")]

    assert list_options(query).send_initial_events is True


def test_the_first_of_several_values_counts() -> None:
    assert list_options([("limit", "1"), ("limit", "2")]).limit == 1


MATCH = 'ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: '


@pytest.mark.parametrize(
    ("query", "code", "message"),
    [
        pytest.param("limit=x", 400, 'strconv.ParseInt: parsing "x": invalid syntax', id="a limit that is no number"),
        pytest.param("limit=", 400, 'strconv.ParseInt: parsing "": invalid syntax', id="an empty limit"),
        pytest.param(
            "limit=9223372036854775808",
            400,
            'strconv.ParseInt: parsing "9223372036854775808": value out of range',
            id="a limit over 64 bits",
        ),
        pytest.param(
            "limit=-1",
            422,
            'ListOptions.meta.k8s.io "" is invalid: limit: Invalid value: -1: must be greater than or equal to 0',
            id="a negative limit",
        ),
        pytest.param(
            "resourceVersion=abc",
            400,
            'invalid resource version: resourceVersion: Invalid value: "abc": '
            'strconv.ParseUint: parsing "abc": invalid syntax',
            id="a version that is no number",
        ),
        pytest.param(
            "continue=a&resourceVersion=7",
            400,
            "specifying resource version is not allowed when using continue",
            id="a version beside a token",
        ),
        pytest.param(
            "resourceVersionMatch=Exact",
            422,
            MATCH + "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided",
            id="a match without a version",
        ),
        pytest.param(
            "resourceVersion=1&resourceVersionMatch=Near",
            422,
            MATCH + 'Unsupported value: "Near": supported values: "Exact", "NotOlderThan", ""',
            id="an unknown match",
        ),
        pytest.param(
            "resourceVersion=0&resourceVersionMatch=Exact",
            422,
            MATCH + 'Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0"',
            id="exactly anything",
        ),
        pytest.param(
            "sendInitialEvents=true",
            422,
            'ListOptions.meta.k8s.io "" is invalid: sendInitialEvents: Forbidden: '
            "sendInitialEvents is forbidden for list",
            id="initial events of a list",
        ),
        pytest.param(
            "watch=1&sendInitialEvents=true",
            422,
            MATCH + "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            id="initial events without a match",
        ),
        pytest.param(
            "watch=1&resourceVersion=1&resourceVersionMatch=NotOlderThan",
            422,
            MATCH + "Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            id="a watch with a match",
        ),
    ],
)
def test_a_list_is_refused_for(query: str, code: int, message: str) -> None:
    assert refusal(list_options, pairs(query)) == (code, message)


def test_writes_as_kubectl_asks_for_them() -> None:
    query = [("fieldManager", "kubectl-create"), ("fieldValidation", "Strict"), ("dryRun", "All")]

    for options in (create_options(query), update_options(query), patch_options(query, apply=True)):
        assert (options.field_manager, options.field_validation) == ("kubectl-create", "Strict")
        assert options.is_dry_run


@pytest.mark.parametrize(
    ("query", "message"),
    [
        pytest.param(
            "fieldValidation=Loose",
            'fieldValidation: Unsupported value: "Loose": supported values: "", "Ignore", "Strict", "Warn"',
            id="an unknown validation",
        ),
        pytest.param(
            "dryRun=Some", 'dryRun: Unsupported value: ["Some"]: supported values: "All"', id="half a dry run"
        ),
        pytest.param("dryRun=", 'dryRun: Unsupported value: [""]: supported values: "All"', id="an empty dry run"),
        pytest.param(
            f"fieldManager={'m' * 129}", "fieldManager: Too long: may not be more than 128 bytes", id="a long manager"
        ),
        pytest.param(
            "fieldManager=a\tb",
            'fieldManager: Invalid value: "a\\tb": invalid character U+0009 (at position 1)',
            id="a manager with a tab",
        ),
    ],
)
def test_a_create_is_refused_for(query: str, message: str) -> None:
    assert refusal(create_options, pairs(query)) == (422, f'CreateOptions.meta.k8s.io "" is invalid: {message}')


def test_only_an_apply_may_force_and_it_must_say_who_applies() -> None:
    start = 'PatchOptions.meta.k8s.io "" is invalid: '

    with pytest.raises(ApiError, match=f"^{start}force: Forbidden: may not be specified for non-apply patch$"):
        patch_options([("force", "true")], apply=False)
    with pytest.raises(ApiError, match=f"^{start}fieldManager: Required value: is required for apply patch$"):
        patch_options([("force", "true")], apply=True)


def test_a_deletion_by_query() -> None:
    options = delete_options([("propagationPolicy", "Foreground"), ("gracePeriodSeconds", "0")])

    assert (options.policy, options.grace_period_seconds, options.is_dry_run) == ("Foreground", 0, False)


def test_a_deletion_by_body_hides_the_query() -> None:
    body = {"propagationPolicy": "Orphan", "gracePeriodSeconds": None, "preconditions": {"uid": "u"}, "dryRun": ["All"]}
    options = delete_options([("propagationPolicy", "Foreground")], body)

    assert (options.policy, options.grace_period_seconds, options.is_dry_run) == ("Orphan", None, True)
    assert options.preconditions is not None
    assert options.preconditions.uid == "u"


@pytest.mark.parametrize(("orphan", "policy"), [("true", "Orphan"), ("false", "Background")])
def test_the_obsolete_orphan_dependents_still_counts(orphan: str, policy: str) -> None:
    assert delete_options([("orphanDependents", orphan)]).policy == policy


def test_a_negative_grace_period_is_one_second() -> None:
    assert delete_options([("gracePeriodSeconds", "-5")]).grace_period_seconds == 1


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        pytest.param(
            {"propagationPolicy": "Now"},
            422,
            'DeleteOptions.meta.k8s.io "" is invalid: propagationPolicy: Unsupported value: "Now": '
            'supported values: "Foreground", "Background", "Orphan", "nil"',
            id="an unknown policy",
        ),
        pytest.param(
            {"propagationPolicy": "Orphan", "orphanDependents": True},
            422,
            'DeleteOptions.meta.k8s.io "" is invalid: propagationPolicy: Invalid value: "Orphan": '
            "orphanDependents and deletionPropagation cannot be both set",
            id="both ways to say it",
        ),
        pytest.param(
            {"gracePeriodSeconds": "soon"},
            400,
            "invalid DeleteOptions: Expected `int | null`, got `str` - at `$.gracePeriodSeconds`",
            id="a grace period that is no number",
        ),
    ],
)
def test_a_deletion_is_refused_for(body: dict[str, Any], code: int, message: str) -> None:
    assert refusal(lambda query: delete_options(query, body), []) == (code, message)


def test_single_parameters() -> None:
    query = [("follow", "True"), ("tailLines", "-1"), ("verbose", "")]

    assert (parse_flag(query, "follow"), parse_flag(query, "verbose"), parse_flag(query, "previous")) == (
        True,
        True,
        False,
    )
    assert (parse_number(query, "tailLines"), parse_number(query, "limitBytes")) == (-1, None)


NAMES = some.sampled_from(["limit", "watch", "resourceVersion", "continue", "dryRun", "gracePeriodSeconds", "force"])


@given(query=some.lists(some.tuples(NAMES, some.text(max_size=30))))
def test_no_query_does_worse_than_a_4xx(query: Query) -> None:
    for options in (list_options, create_options, delete_options):
        assert code_of(options, query) in (200, 400, 422)


def pairs(query: str) -> Query:
    return [(name, value) for name, _, value in (pair.partition("=") for pair in query.split("&"))]


def code_of(options: Callable[[Query], object], query: Query) -> int:
    try:
        options(query)
    except ApiError as error:
        return error.code
    return 200


def refusal(options: Callable[[Query], object], query: Query) -> tuple[int, str]:
    with pytest.raises(ApiError) as refused:
        options(query)
    return refused.value.code, refused.value.message

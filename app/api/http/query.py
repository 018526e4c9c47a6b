"""Request options (ListOptions, CreateOptions, DeleteOptions ...) from the query, or a DELETE's body: typed and checked.

Routes call `create_options`, `update_options`, `patch_options` and `delete_options` with the pairs of `query_of`;
`app.api.resources.selection` reads list options once for a request. Of a parameter that is repeated the first value counts, as in
Kubernetes' conversion of query parameters. The structs are also what `app.api.openapi.paths` documents. Refusals are
worded as Kubernetes words them, except that a negative limit is refused where Kubernetes takes it for none.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Annotated, Any, TypeVar, cast

import msgspec
from msgspec import Meta, inspect
from starlette.requests import Request

from app.machinery.base import Int64, Struct, at
from app.machinery.errors import (
    Cause,
    bad_request,
    forbidden,
    format_value,
    invalid,
    not_supported,
    required,
    unprocessable,
)
from app.machinery.meta.metadata_validation import NEGATIVE, validate_manager

Query = Sequence[tuple[str, str]]
INT64_MAX = 2**63 - 1


class ListOptions(Struct):
    """Which objects, and whether once or as a stream."""

    label_selector: Annotated[str, Meta(description="Only objects whose labels fit.")] = ""
    field_selector: Annotated[str, Meta(description="Only objects whose fields fit.")] = ""
    limit: Annotated[Int64, Meta(description="At most so many objects in one answer; 0 is all.")] = 0
    continue_: Annotated[str, Meta(description="The token of the page before, to get the next.")] = ""
    resource_version: Annotated[str, Meta(description="How fresh a list must be, or where a watch begins.")] = ""
    resource_version_match: Annotated[str, Meta(description="Exact or NotOlderThan: how to read resourceVersion.")] = ""
    watch: Annotated[bool, Meta(description="Stream changes instead of answering once.")] = False
    allow_watch_bookmarks: Annotated[bool, Meta(description="The client understands BOOKMARK events.")] = False
    send_initial_events: Annotated[
        bool | None, Meta(description="Begin a watch with what exists, then one bookmark that says so.")
    ] = None
    timeout_seconds: Annotated[Int64 | None, Meta(description="End the request after so many seconds.")] = None

    @property
    def revision(self) -> int | None:
        """`resource_version` as a number; None if it is unset."""
        return int(self.resource_version) if self.resource_version else None

    @property
    def begins_with_objects(self) -> bool:
        """Whether a watch sends what exists before what changes: as asked, or by a resourceVersion that is unset or 0."""
        if self.send_initial_events is not None:
            return self.send_initial_events
        return self.resource_version in ("", "0")

    @property
    def exact_revision(self) -> int | None:
        """The revision that a list must show (Exact, or any paged list); None if a newer one is valid, too."""
        is_exact = self.resource_version_match == "Exact" or (not self.resource_version_match and self.limit > 0)
        return self.revision or None if is_exact else None


class WriteOptions(Struct):
    """How to take a create, update or patch."""

    field_manager: Annotated[str, Meta(description="Who writes, for the record of who owns which field.")] = ""
    field_validation: Annotated[
        str, Meta(description="What to do about unknown and duplicate fields: Ignore, Warn or Strict.")
    ] = ""
    dry_run: Annotated[tuple[str, ...], Meta(description="All: check everything, store nothing.")] = ()
    force: Annotated[bool | None, Meta(description="Take over fields that other managers own. Apply only.")] = None

    @property
    def is_dry_run(self) -> bool:
        return bool(self.dry_run)


class Preconditions(Struct):
    """What must hold for a deletion to happen."""

    uid: Annotated[str | None, at(1, "The object's UID.")] = None
    resource_version: Annotated[str | None, at(2, "The object's version.")] = None


class DeleteOptions(Struct):
    """How to delete."""

    api_version: Annotated[str, at(0, "API version of these options.")] = ""
    kind: Annotated[str, at(0, "DeleteOptions.")] = ""
    grace_period_seconds: Annotated[Int64 | None, at(1, "How long the object may take to go; 0 is at once.")] = None
    preconditions: Annotated[Preconditions | None, at(2, "Refuse with 409 unless these hold.")] = None
    orphan_dependents: Annotated[bool | None, at(3, "Obsolete form of propagationPolicy.")] = None
    propagation_policy: Annotated[str | None, at(4, "What becomes of dependents: Orphan, Background, Foreground.")] = (
        None
    )
    dry_run: Annotated[tuple[str, ...], at(5, "All: check everything, delete nothing.")] = ()

    @property
    def is_dry_run(self) -> bool:
        return bool(self.dry_run)

    @property
    def policy(self) -> str:
        """The propagation policy: Orphan, Background or Foreground; empty for the kind's default."""
        if self.orphan_dependents is not None:
            return "Orphan" if self.orphan_dependents else "Background"
        return self.propagation_policy or ""


def query_of(request: Request) -> Query:
    """Return the parameters of a request, decoded, in their order. Most writes have none, which costs nothing."""
    return request.query_params.multi_items() if request.scope["query_string"] else ()


def read_list_options(query: Query) -> ListOptions:
    """Read the options of GET or DELETE of a collection, unchecked. 400 for a malformed number."""
    return read(query, ListOptions)


def check_list_options(options: ListOptions) -> None:
    """Raise 400 or 422 for options that are invalid together."""
    _check_revision(options)
    causes = [*_negative_causes(options), *(_watch_causes(options) if options.watch else _list_causes(options))]
    _raise_invalid("ListOptions", causes)


def create_options(query: Query) -> WriteOptions:
    """Read CreateOptions, for POST. 422 for invalid ones."""
    return _write_options(query, "CreateOptions")


def update_options(query: Query) -> WriteOptions:
    """Read UpdateOptions, for PUT. 422 for invalid ones."""
    return _write_options(query, "UpdateOptions")


def patch_options(query: Query, *, apply: bool) -> WriteOptions:
    """Read PatchOptions, for PATCH; `apply` for server-side apply, which requires fieldManager. 422 for invalid ones."""
    return _write_options(query, "PatchOptions", apply)


def delete_options(query: Query, body: Mapping[str, Any] | None = None) -> DeleteOptions:
    """Read DeleteOptions, for DELETE. A body, even an empty object, hides the query, as in Kubernetes."""
    options = read(query, DeleteOptions) if body is None else _convert_body(body)
    causes = _dry_run_causes(options.dry_run)
    policy = options.propagation_policy
    if policy is not None and options.orphan_dependents is not None:
        causes.append(
            invalid("propagationPolicy", policy, "orphanDependents and deletionPropagation cannot be both set")
        )
    if policy not in (None, "Foreground", "Background", "Orphan"):
        causes.append(not_supported("propagationPolicy", policy, ("Foreground", "Background", "Orphan", "nil")))
    _raise_invalid("DeleteOptions", causes)
    if (options.grace_period_seconds or 0) < 0:
        return msgspec.structs.replace(options, grace_period_seconds=1)  # Kubernetes: below zero is one second
    return options


def parse_boolean(value: str) -> bool:
    """Parse a boolean as Kubernetes' conversion of queries: only `false` and `0` are false, an empty value is true."""
    return value != "0" and value.lower() != "false"


def parse_flag(query: Query, name: str) -> bool:
    """Return a boolean parameter outside of the options structs, such as `follow`."""
    value = first_value(query, name)
    return value is not None and parse_boolean(value)


def parse_number(query: Query, name: str) -> int | None:
    """Return an integer parameter outside of the options structs, such as `tailLines`."""
    value = first_value(query, name)
    return None if value is None else parse_integer(value)


def first_value(query: Query, name: str) -> str | None:
    """Return the first value of a parameter; None if it is absent."""
    return next((value for key, value in query if key == name), None)


def parse_integer(value: str) -> int:
    """Parse a 64-bit integer; 400 with Go's ParseInt message."""
    digits = value[1:] if value[:1] in ("-", "+") else value
    if not (digits.isascii() and digits.isdigit()):
        raise bad_request(f"strconv.ParseInt: parsing {format_value(value)}: invalid syntax")
    if len(digits) > 30 or not -INT64_MAX - 1 <= int(value) <= INT64_MAX:
        raise bad_request(f"strconv.ParseInt: parsing {format_value(value)}: value out of range")
    return int(value)


S = TypeVar("S", bound=Struct)


def read(query: Query, options: type[S]) -> S:
    """Fill an options struct from the pairs that it declares; the first of several values counts, except for lists."""
    given: dict[str, list[str]] = {}
    for name, value in query:
        given.setdefault(name, []).append(value)
    readers = _parsers_of(options)
    return options(**{readers[name][0]: readers[name][1](values) for name, values in given.items() if name in readers})


def _parser_of(kind: inspect.Type) -> Any:
    while isinstance(kind, inspect.Metadata):
        kind = kind.type
    if isinstance(kind, inspect.UnionType):
        kind = next(each for each in kind.types if not isinstance(each, inspect.NoneType))
        return _parser_of(kind)
    if isinstance(kind, inspect.BoolType):
        return lambda values: parse_boolean(values[0])
    if isinstance(kind, inspect.IntType):
        return lambda values: parse_integer(values[0])
    if isinstance(kind, inspect.VarTupleType):
        return tuple
    return lambda values: values[0]


@cache
def _parsers_of(options: type[Struct]) -> dict[str, tuple[str, Any]]:
    shape = cast("inspect.StructType", inspect.type_info(options))
    return {
        each.encode_name: (each.name, _parser_of(each.type)) for each in shape.fields if each.name not in _BODY_ONLY
    }


_BODY_ONLY = {"api_version", "kind", "preconditions"}


def _convert_body(body: Mapping[str, Any]) -> DeleteOptions:
    try:
        return msgspec.convert({name: value for name, value in body.items() if value is not None}, DeleteOptions)
    except msgspec.ValidationError as error:
        raise bad_request(f"invalid DeleteOptions: {error}") from error


def _raise_invalid(kind: str, causes: list[Cause]) -> None:
    if causes:
        raise unprocessable(kind, "meta.k8s.io", "", causes)


def _check_revision(options: ListOptions) -> None:
    value = options.resource_version
    if not value:
        return
    problem = None
    if not (value.isascii() and value.isdigit()):
        problem = "invalid syntax"
    elif len(value) > 30 or int(value) > INT64_MAX:
        problem = "value out of range"
    if problem:
        detail = f"strconv.ParseUint: parsing {format_value(value)}: {problem}"
        cause = invalid("resourceVersion", value, detail)
        raise bad_request(f"invalid resource version: {cause.field}: {cause.message}")
    if options.continue_ and value != "0" and not options.watch:
        raise bad_request("specifying resource version is not allowed when using continue")


def _negative_causes(options: ListOptions) -> list[Cause]:
    given = {"limit": options.limit, "timeoutSeconds": options.timeout_seconds or 0}
    return [invalid(name, value, NEGATIVE) for name, value in given.items() if value < 0]


def _list_causes(options: ListOptions) -> list[Cause]:
    match, causes = options.resource_version_match, []
    if match and not options.resource_version:
        causes.append(
            forbidden("resourceVersionMatch", "resourceVersionMatch is forbidden unless resourceVersion is provided")
        )
    causes += _match_causes(options, ("Exact", "NotOlderThan", ""))
    if match == "Exact" and options.resource_version == "0":
        causes.append(
            forbidden("resourceVersionMatch", 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"')
        )
    if options.send_initial_events is not None:
        causes.append(forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    return causes


def _watch_causes(options: ListOptions) -> list[Cause]:
    match, initial, causes = options.resource_version_match, options.send_initial_events, []
    if initial is not None and match != "NotOlderThan":
        why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        causes.append(forbidden("resourceVersionMatch", why))
    if match and initial is None:
        why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
        causes.append(forbidden("resourceVersionMatch", why))
    return causes + _match_causes(options, ("NotOlderThan",))


def _match_causes(options: ListOptions, allowed: tuple[str, ...]) -> list[Cause]:
    match, causes = options.resource_version_match, []
    if match and options.continue_:
        causes.append(forbidden("resourceVersionMatch", "resourceVersionMatch is forbidden when continue is provided"))
    if match and match not in allowed:
        causes.append(not_supported("resourceVersionMatch", match, allowed))
    return causes


def _write_options(query: Query, kind: str, apply: bool | None = None) -> WriteOptions:
    if not query and not apply:
        return _NO_WRITE_OPTIONS
    options = read(query, WriteOptions)
    causes = [] if apply is None else _apply_causes(options, apply)
    causes += validate_manager(options.field_manager, "fieldManager")
    causes += _dry_run_causes(options.dry_run)
    if options.field_validation not in ("", "Ignore", "Strict", "Warn"):
        supported = ("", "Ignore", "Strict", "Warn")
        causes.append(not_supported("fieldValidation", options.field_validation, supported))
    _raise_invalid(kind, causes)
    return options


_NO_WRITE_OPTIONS = WriteOptions()


def _apply_causes(options: WriteOptions, apply: bool) -> list[Cause]:
    if apply:
        return [] if options.field_manager else [required("fieldManager", "is required for apply patch")]
    return [] if options.force is None else [forbidden("force", "may not be specified for non-apply patch")]


def _dry_run_causes(dry_run: tuple[str, ...]) -> list[Cause]:
    return [] if set(dry_run) <= {"All"} else [not_supported("dryRun", dry_run, ("All",))]

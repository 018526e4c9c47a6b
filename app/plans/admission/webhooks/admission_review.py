"""AdmissionReview: what is sent to a webhook, and how its response is read. Pure. Texts are Kubernetes'.

The request is v1 or v1beta1, whichever of them the webhook lists first; both have the same fields.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import msgspec

from app.kinds.admission.webhook_defaults import REVIEW_VERSIONS
from app.machinery.base import Kind

GROUP = "admission.k8s.io"
_OPTIONS = {"CREATE": "CreateOptions", "UPDATE": "UpdateOptions", "DELETE": "DeleteOptions"}


class CallError(Exception):
    """A webhook could not be called, or its response means nothing. The message says why, after `failed calling webhook`."""


class ReviewRequest(NamedTuple):
    """A request to review. `object`, `old_object`: as JSON, in the version of `kind`; None if there is none."""

    uid: str
    kind: Kind
    request_kind: Kind
    subresource: str
    name: str
    namespace: str
    operation: str
    user: Mapping[str, object]
    object: bytes | None
    old_object: bytes | None
    dry_run: bool


class ReviewStatus(msgspec.Struct, frozen=True):
    """Why a request is refused: the parts of a Status that are handed on."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: Any = None


class ReviewResponse(msgspec.Struct, frozen=True, rename="camel"):
    """What a webhook answers."""

    uid: str = ""
    allowed: bool = False
    result: Annotated[ReviewStatus | None, msgspec.Meta()] = msgspec.field(default=None, name="status")
    patch: bytes | None = None
    patch_type: str | None = None
    audit_annotations: dict[str, str] | None = None
    warnings: list[str] | None = None


class _Review(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str = ""
    kind: str = ""
    response: ReviewResponse | None = None


_decoder = msgspec.json.Decoder(_Review)
_encoder = msgspec.json.Encoder()


def choose_version(versions: Sequence[str]) -> str:
    """Return the version of AdmissionReview to send. Raises CallError if the webhook understands none."""
    for version in versions:
        if version in REVIEW_VERSIONS:
            return version
    raise CallError(
        "could not create admission objects: webhook does not accept known AdmissionReview versions (v1, v1beta1)"
    )


def encode_review(version: str, request: ReviewRequest) -> bytes:
    """Return the body of a call."""
    return _encoder.encode(
        {"kind": "AdmissionReview", "apiVersion": f"{GROUP}/{version}", "request": request_document(request)}
    )


def request_document(request: ReviewRequest) -> dict[str, object]:
    """Return `request` of an AdmissionReview, which match conditions see, too."""
    kind, asked = request.kind, request.request_kind
    document: dict[str, object] = {
        "uid": request.uid,
        "kind": {"group": kind.group, "version": kind.version, "kind": kind.name},
        "resource": {"group": kind.group, "version": kind.version, "resource": kind.plural},
        "requestKind": {"group": asked.group, "version": asked.version, "kind": asked.name},
        "requestResource": {"group": asked.group, "version": asked.version, "resource": asked.plural},
        "operation": request.operation,
        "userInfo": request.user,
        "object": _raw(request.object),
        "oldObject": _raw(request.old_object),
        "dryRun": request.dry_run,
        "options": _options(request),
    }
    if request.subresource:
        document |= {"subResource": request.subresource, "requestSubResource": request.subresource}
    document |= {"name": request.name} if request.name else {}
    return document | ({"namespace": request.namespace} if request.namespace else {})


def _raw(body: bytes | None) -> msgspec.Raw | None:
    return None if body is None else msgspec.Raw(body)


def _options(request: ReviewRequest) -> dict[str, object]:
    options: dict[str, object] = {"kind": _OPTIONS[request.operation], "apiVersion": "meta.k8s.io/v1"}
    return options | ({"dryRun": ["All"]} if request.dry_run else {})


def read_response(version: str, uid: str, body: bytes, *, mutating: bool) -> ReviewResponse:
    """Return the response in a body. Raises CallError if it is not one to this request."""
    try:
        review = _decoder.decode(body)
    except msgspec.MsgspecError as error:
        raise CallError(f"failed to call webhook: couldn't decode response: {error}") from None
    wanted, given = f"{GROUP}/{version}", review.api_version
    response = review.response
    if response is None:
        raise _invalid("webhook response was absent")
    if version == "v1":
        if response.uid != uid:
            raise _invalid(f'expected response.uid="{uid}", got "{response.uid}"')
        if (given, review.kind) != (wanted, "AdmissionReview"):
            got = _describe_kind(given, review.kind)
            raise _invalid(f"expected webhook response of {_describe_kind(wanted, 'AdmissionReview')}, got {got}")
        _check_patch(response, mutating=mutating)
    return response


def _check_patch(response: ReviewResponse, *, mutating: bool) -> None:
    patch, type_ = response.patch, response.patch_type
    if not mutating:
        if patch:
            raise _invalid("validating webhook may not return response.patch")
        if type_ is not None:
            raise _invalid("validating webhook may not return response.patchType")
    elif patch and type_ is None:
        raise _invalid("webhook returned response.patch but not response.patchType")
    elif type_ is not None and not patch:
        raise _invalid("webhook returned response.patchType but not response.patch")
    elif type_ == "":
        raise _invalid('webhook returned invalid response.patchType of ""')


def read_patch(version: str, response: ReviewResponse) -> list[Any]:
    """Return the operations of a mutating webhook's patch; none if it changes nothing. Raises CallError."""
    if not response.patch:
        return []
    if version == "v1" and response.patch_type != "JSONPatch":
        raise CallError(f'unsupported patch type "{response.patch_type}"')
    try:
        operations = msgspec.json.decode(response.patch)
    except msgspec.DecodeError as error:
        raise CallError(f"received undecodable patch in webhook response: {error}") from None
    if not isinstance(operations, list):
        raise CallError("received undecodable patch in webhook response: it is no list of operations")
    return operations


def _invalid(why: str) -> CallError:
    return CallError(f"received invalid webhook response: {why}")


def _describe_kind(api_version: str, kind: str) -> str:
    return f"{api_version}, Kind={kind}"

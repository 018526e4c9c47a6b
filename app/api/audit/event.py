"""Audit events: what is known of a request, as one line of JSON: kind Event of audit.k8s.io/v1.

`auditor` makes a `Record`, which costs about a microsecond; `encode` makes the line of it, which costs three. What a record
refers to does not change any more. Pure. Source: k8s.io/apiserver/pkg/apis/audit/v1.
"""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from ipaddress import ip_address
from typing import Any
from urllib.parse import unquote

import msgspec

from app.api.audit.policy import API_VERSION, LEVELS, Level, has_secrets
from app.api.auth.authenticator import MASTERS, User
from app.machinery.struct import Struct
from app.plans.admission.rbac import Action, Grant
from app.registry.verbs.objects import Created

_LONGEST_URI = 8 << 10
_LONGEST_AGENT = 1024
_LONGEST_BODY = 4 << 20
_SIZE = 2048  # bytes of a record without bodies
_GZIP = b"\x1f\x8b"
_MOST_PROXIES = 16
# Nothing here takes a secret in its query; a client that sends one by mistake does not put it into the log.
_SECRET_PARAMETERS = ("token", "password", "passwd", "secret", "code", "signin", "key", "authorization", "credential")
# Their messages quote what was sent.
_QUOTING = frozenset({400, 413, 415, 422})
_READ_HEADERS = frozenset({b"user-agent", b"x-forwarded-for", b"x-real-ip"})


class Record(msgspec.Struct, frozen=True, gc=False):
    """An event before it is encoded.

    user:     who sent the request; None if nobody is known. acting_user: as whom it was authorized.
    grant:    the rule that allowed it; None if fixed rights did.
    created:  name, UID and revision of the object that was created; None if none was.
    refusal:  the body of a refusal.
    request, response: bodies for levels that have them.
    """

    id: bytes
    level: int
    stage: str
    verb: str
    path: bytes
    query: bytes
    client: str
    headers: Sequence[tuple[bytes, bytes]]
    user: User | None
    acting_user: User | None
    action: Action | None
    version: str
    grant: Grant | None
    code: int
    received: float
    at: float
    annotations: Mapping[str, str]
    created: Created | None = None
    refusal: bytes = b""
    request: bytes = b""
    response: bytes = b""
    omits_managed_fields: bool = False

    @property
    def size(self) -> int:
        """About how many bytes it holds."""
        return _SIZE + len(self.refusal) + len(self.request) + len(self.response)


class UserInfo(Struct):
    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = {}


class ObjectReference(Struct):
    resource: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    api_group: str = ""
    api_version: str = ""
    resource_version: str = ""
    subresource: str = ""


class Status(msgspec.Struct, omit_defaults=True):
    metadata: Mapping[str, str] = msgspec.field(default_factory=lambda: _NOTHING)
    status: str = ""
    message: str = ""
    reason: str = ""
    code: int = 0


class Event(msgspec.Struct, omit_defaults=True, rename="camel", kw_only=True):
    """One line of the log, with its fields in Kubernetes' order."""

    kind: str
    api_version: str
    level: str
    audit_id: str = msgspec.field(name="auditID")
    stage: str
    request_uri: str = msgspec.field(name="requestURI")
    verb: str
    user: UserInfo
    impersonated_user: UserInfo | None = None
    source_ips: list[str] = msgspec.field(name="sourceIPs")
    user_agent: str = ""
    object_ref: ObjectReference | None = None
    response_status: Status | None = None
    request_object: Any = None
    response_object: Any = None
    request_received_timestamp: str
    stage_timestamp: str
    annotations: Mapping[str, str] = {}


class _Refusal(msgspec.Struct):
    message: str = ""
    reason: str = ""


_DECISION, _REASON = "authorization.k8s.io/decision", "authorization.k8s.io/reason"
_NOTHING: Mapping[str, str] = {}
_ENCODER = msgspec.json.Encoder()
_REFUSAL = msgspec.json.Decoder(_Refusal)


def encode(records: Sequence[Record]) -> bytes:
    """Return the events as lines, each with its line end."""
    return _ENCODER.encode_lines([_event(record) for record in records])


def _event(record: Record) -> Event:
    action, user, acting = record.action, record.user, record.acting_user
    agent, proxies = _read_headers(record.headers)
    shows_bodies = record.level >= Level.REQUEST and not has_secrets(action) and 0 < record.code < 400
    return Event(
        kind="Event",
        api_version=API_VERSION,
        level=LEVELS[record.level],
        audit_id=record.id.decode(),
        stage=record.stage,
        request_uri=request_uri(record.path, record.query),
        verb=record.verb,
        user=_user_info(user) if user else UserInfo(),
        impersonated_user=_user_info(acting) if acting is not None and acting is not user else None,
        source_ips=[*proxies, *([record.client] if record.client else ())],
        user_agent=agent,
        object_ref=_reference(record, action) if action is not None else None,
        response_status=_status(record) if record.code else None,
        request_object=_plain(record.request, record) if shows_bodies else None,
        response_object=_plain(record.response, record) if shows_bodies else None,
        request_received_timestamp=_micro_time(record.received),
        stage_timestamp=_micro_time(record.at),
        annotations=_annotations(record),
    )


def _user_info(user: User) -> UserInfo:
    return UserInfo(user.name, user.uid, user.groups, user.extra)


def _reference(record: Record, action: Action) -> ObjectReference:
    """The object of a request. One that was created has the name, UID and revision that it got."""
    name, uid, revision = record.created or (action.name, "", 0)
    return ObjectReference(
        resource=action.resource,
        namespace=action.namespace,
        name=name,
        uid=uid,
        api_group=action.group,
        api_version=record.version,
        resource_version=str(revision) if revision else "",
        subresource=action.subresource,
    )


def _status(record: Record) -> Status:
    """The answer. Messages that quote what was sent are left out, and so are those about what has secrets, but for denials."""
    code = record.code
    if code < 400:
        return Status(code=code)
    try:
        refusal = _REFUSAL.decode(record.refusal) if record.refusal else _Refusal()
    except msgspec.MsgspecError:
        refusal = _Refusal()
    return Status(
        status="Failure", message="" if code in _QUOTING else refusal.message, reason=refusal.reason, code=code
    )


def _annotations(record: Record) -> Mapping[str, str]:
    """Return the annotations noted on the way, then the decision and its reason. A request without a user has no decision."""
    if not record.code or record.acting_user is None or record.code == 401:
        return record.annotations
    if record.code == 403:
        return {**record.annotations, _DECISION: "forbid", _REASON: _complaint(record)}
    return {**record.annotations, _DECISION: "allow", _REASON: _reason(record.acting_user, record.grant)}


def _reason(user: User, grant: Grant | None) -> str:
    if grant is not None:
        return f"RBAC: allowed by {grant.through}"
    if MASTERS in user.groups:
        return f'allowed by the group "{MASTERS}"'
    return "allowed by fixed rights"


def _complaint(record: Record) -> str:
    """What is wrong with the user's bindings, as the refusal ends with it."""
    try:
        message = _REFUSAL.decode(record.refusal).message if record.refusal else ""
    except msgspec.MsgspecError:
        return ""
    _, found, complaint = message.partition(": RBAC: ")
    return f"RBAC: {complaint}" if found else ""


def _read_headers(headers: Sequence[tuple[bytes, bytes]]) -> tuple[str, list[str]]:
    """User-Agent, and the addresses that proxies name, which any client can make up; the last of `sourceIPs` is the real one."""
    agent = ""
    proxies: list[str] = []
    for name, value in headers:
        if name not in _READ_HEADERS:
            continue
        if name == b"user-agent":
            agent = value.decode("latin-1")[:_LONGEST_AGENT]
        else:
            proxies += _addresses(value.decode("latin-1"))
    return agent, list(dict.fromkeys(proxies))[:_MOST_PROXIES] if proxies else proxies


def _addresses(text: str) -> Iterator[str]:
    for each in text.split(",")[:_MOST_PROXIES]:
        try:
            yield str(ip_address(each.strip()))
        except ValueError:
            continue


def request_uri(path: bytes, query: bytes) -> str:
    """The target of a request, with the values of parameters cut that are named like secrets."""
    uri = path.decode("latin-1")
    if query:
        uri = f"{uri}?{'&'.join(_without_secret(each) for each in query.decode('latin-1').split('&'))}"
    return uri if len(uri) <= _LONGEST_URI else f"{uri[:_LONGEST_URI]}..."


def _without_secret(parameter: str) -> str:
    name, equals, _ = parameter.partition("=")
    plain = unquote(name).lower()
    is_secret = equals and any(word in plain for word in _SECRET_PARAMETERS)
    return f"{name}=***" if is_secret else parameter


def _plain(body: bytes, record: Record) -> Any:
    """A body as JSON, on one line; None if it is empty or of another form."""
    if not body:
        return None
    try:
        if body.startswith(_GZIP):
            body = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(body, _LONGEST_BODY)
        plain = msgspec.json.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError, zlib.error):
        return None
    return _without_managed_fields(plain) if record.omits_managed_fields else plain


def _without_managed_fields(plain: Any) -> Any:
    if not isinstance(plain, dict):
        return plain
    found = dict(plain)
    if isinstance(metadata := found.get("metadata"), dict):
        found["metadata"] = {name: value for name, value in metadata.items() if name != "managedFields"}
    if isinstance(items := found.get("items"), list):
        found["items"] = [_without_managed_fields(each) for each in items]
    return found


def _micro_time(seconds: float) -> str:
    whole = int(seconds)
    return f"{_whole_time(whole)}.{int((seconds - whole) * 1e6):06d}Z"


@lru_cache(16)
def _whole_time(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")

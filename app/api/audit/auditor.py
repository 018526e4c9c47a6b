"""Auditor: follows each request, and puts its events into the buffer when its answer begins and ends.

`app.api.middleware` tells it of every request and answer. What a request is about is noted in its scope on the way: `note_action`
by whatever authorizes, the user and the credential by `app.api.auth.impersonation`, annotations by `annotations`.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from starlette.types import Message, Receive, Scope

from app.api.audit.annotations import KEY
from app.api.audit.event import Record
from app.api.audit.event_buffer import EventBuffer
from app.api.audit.policy import CompiledPolicy, Level, Stage, is_always_audited
from app.api.auth.authenticator import User
from app.client.protocol import BASE
from app.metrics.instruments import Counter
from app.metrics.registry import MetricsRegistry
from app.plans.admission.rbac import Action

LONGEST_BODY = 1 << 20  # of a request or answer that an event has
_LONGEST_REFUSAL = 64 << 10
_LONG_RUNNING = frozenset({"WATCH", "CONNECT"})
_HANDED_OVER = 101
_NOBODY: tuple[str, tuple[str, ...]] = ("", ())
_NOTHING: Mapping[str, Any] = {}
WAIT_SECONDS = 10.0
# They go on while the log cannot be written: otherwise nodes would be lost, and the process be taken for dead.
_NEVER_WAIT = (f"{BASE}/nodes/", "/livez", "/readyz", "/healthz", "/metrics", "/apis/coordination.k8s.io/")


@dataclass(frozen=True)
class Audit:
    """What audits the requests of one process."""

    policy: CompiledPolicy
    buffer: EventBuffer
    clock: Callable[[], float] = time.time
    wait_seconds: float = WAIT_SECONDS


def note_action(scope: Scope, action: Action, version: str) -> None:
    """Note what a request is about, before it is authorized. `version`: that of the API, such as v1."""
    scope["action"] = action
    scope["api_version"] = version
    followed: AuditedRequest | None = scope.get("audit")
    if followed is not None:
        followed.receive_action()


class Auditor:
    """Follows the requests of one API process.

    wants_bodies: the body of each request goes through `keep_request`.
    """

    def __init__(self, audit: Audit, metrics: MetricsRegistry) -> None:
        self._audit = audit
        self.buffer = audit.buffer
        self.wants_bodies = audit.policy.has_bodies
        self._rejected: Counter = metrics.counter(
            "apiserver_audit_requests_rejected_total", "Requests that were refused, as the audit log took no event."
        )

    async def wait_for_room(self, path: str) -> bool:
        """Wait some seconds for room in a full buffer; return whether there is. Mode batch, agents and probes never wait."""
        if self.buffer.mode == "batch" or path.startswith(_NEVER_WAIT):
            return True
        has_room = await self.buffer.wait_for_room(self._audit.wait_seconds)
        if not has_room:
            self._rejected.inc()
        return has_room

    def follow(self, scope: Scope) -> "AuditedRequest":
        """Follow a request that has just arrived."""
        followed = AuditedRequest(self._audit, scope)
        if not self._audit.policy.omits_receipt:
            scope["audit"] = followed
        if "extensions" in scope:
            followed.follow_upgrade()
        return followed


class AuditedRequest:
    """One request and its answer. Call `begin_response` and `complete` once each."""

    _code = 0
    _refusal = _request = _answer = b""
    _was_received = False

    def __init__(self, audit: Audit, scope: Scope) -> None:
        self._audit, self._scope = audit, scope
        self._began = audit.clock()

    def begin_response(self, code: int) -> bool:
        """Note the status code; return whether the parts of the answer's body go through `keep_body`."""
        self._code = code
        if code >= 400:
            return True
        target = self._scope.get("target")
        if target is not None and target[0] in _LONG_RUNNING:
            self._put("ResponseStarted")
            return False
        return self._audit.policy.has_answers

    def keep_body(self, message: Message) -> None:
        """Keep what an event may have of a part of the answer's body."""
        body: bytes = message.get("body", b"")
        if self._code >= 400:
            self._refusal = self._refusal or body[:_LONGEST_REFUSAL]
        elif len(self._answer) + len(body) <= LONGEST_BODY:
            self._answer += body

    def keep_request(self, receive: Receive) -> Receive:
        """Return what receives, and keeps the body."""

        async def kept() -> Message:
            message = await receive()
            if len(self._request) + len(message.get("body", b"")) <= LONGEST_BODY:
                self._request += message.get("body", b"")
            return message

        return kept

    def follow_upgrade(self) -> None:
        """Note when the connection is handed over: nothing is sent then."""
        extensions: dict[str, Any] = self._scope["extensions"]
        if "upgrade" not in extensions:
            return
        take_over = extensions["upgrade"]["take_over"]

        def followed(headers: Any) -> Any:
            wire = take_over(headers)
            self._code = _HANDED_OVER
            self._put("ResponseStarted")
            return wire

        self._scope["extensions"] = {**extensions, "upgrade": {"take_over": followed}}

    def receive_action(self) -> None:
        """Put the event of a request whose user and object have just become known."""
        if not self._was_received:
            self._was_received = True
            self._put("RequestReceived")

    def complete(self) -> None:
        """Put the event of a request that has ended; before it that of its receipt, if nobody got to know what it was about."""
        if not self._audit.policy.omits_receipt:
            # A cycle would keep the request until the garbage collector comes, which a GET pays a third for.
            self._scope.pop("audit", None)
            self.receive_action()
        self._put("ResponseComplete")

    def _put(self, stage: Stage) -> None:
        """Put an event, if the policy wants it, or if there must be one."""
        scope, audit = self._scope, self._audit
        state: Mapping[str, Any] = scope.get("state") or _NOTHING
        credential, acting_user = state.get("credential"), state.get("user")
        user: User | None = credential.holder if credential is not None else None
        action: Action | None = scope.get("action")
        verb = action.verb if action is not None else scope["method"].lower()
        name, groups = (user.name, user.groups) if user is not None else _NOBODY
        found = audit.policy.judge(name, groups, verb, action, scope["path"])
        level = found.level
        code = 0 if stage == "RequestReceived" else self._code
        if level == Level.NONE or stage in found.omitted:
            impersonates = acting_user is not user
            if stage == "RequestReceived" or not is_always_audited(action, code, impersonates=impersonates):
                return
            level = max(level, Level.METADATA)
        client = scope.get("client")
        audit.buffer.put(
            Record(
                id=scope["audit_id"],
                level=level,
                stage=stage,
                verb=verb,
                path=scope["raw_path"],
                query=scope["query_string"],
                client=client[0] if client else "",
                headers=scope["headers"],
                user=user,
                acting_user=acting_user,
                action=action,
                version=scope.get("api_version", ""),
                grant=scope.get("grant"),
                code=code,
                received=self._began,
                at=audit.clock(),
                annotations=scope.get(KEY) or _NOTHING,
                created=scope.get("created"),
                refusal=self._refusal,
                request=self._request if level >= Level.REQUEST else b"",
                response=self._answer if level == Level.REQUEST_RESPONSE else b"",
                omits_managed_fields=found.omits_managed_fields,
            )
        )

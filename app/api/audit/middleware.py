"""ASGI middleware of audit: follows each request, and puts its events into the buffer when its answer begins and ends.

`app.api.app` puts it around everything that answers. What a request is about is noted in its scope on the way: `note_action` by
whatever authorizes, the user and the credential by `app.api.auth.impersonation`, annotations by `annotations`.
"""

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.audit.annotations import KEY
from app.api.audit.event import Record
from app.api.audit.event_buffer import EventBuffer
from app.api.audit.policy import CompiledPolicy, Level, Stage, is_always_audited
from app.api.auth.authenticator import User
from app.api.http import errors
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
    follower: _Exchange | None = scope.get("audit")
    if follower is not None:
        follower.receive_action()


class AuditMiddleware:
    """Makes the events of every HTTP request."""

    def __init__(self, app: ASGIApp, audit: Audit, metrics: MetricsRegistry) -> None:
        self._app, self._audit = app, audit
        self._rejected: Counter = metrics.counter(
            "apiserver_audit_requests_rejected_total", "Requests that were refused, as the audit log took no event."
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        audit = self._audit
        exchange = _Exchange(audit, scope, send)
        if audit.buffer.is_full and audit.buffer.mode == "blocking" and not await self._has_room(scope["path"]):
            self._rejected.inc()
            await errors.response(errors.unavailable("the audit log cannot be written, try again"))(
                scope, receive, send
            )
            return
        scope["audit"] = exchange
        if audit.policy.has_bodies:
            receive = exchange.keep_request(receive)
        if "extensions" in scope:
            exchange.follow_upgrade()
        try:
            await self._app(scope, receive, exchange.send)
        finally:
            exchange.complete()
            del scope[
                "audit"
            ]  # a cycle would keep the request until the garbage collector comes, which a GET pays a third for

    async def _has_room(self, path: str) -> bool:
        return path.startswith(_NEVER_WAIT) or await self._audit.buffer.wait_for_room(self._audit.wait_seconds)


class _Exchange:
    """One request and its answer."""

    _code = 0
    _refusal = _request = _answer = b""
    _was_received = False

    def __init__(self, audit: Audit, scope: Scope, send: Send) -> None:
        self._audit, self._scope, self._send = audit, scope, send
        self._began = audit.clock()

    def send(self, message: Message) -> Awaitable[None]:
        """Send a part of the answer; note its code, and what an event may have of its body."""
        if not self._code:
            if message["type"] == "http.response.start":
                self._code = message["status"]
                target = self._scope.get("target")
                if self._code < 400 and target is not None and target[0] in _LONG_RUNNING:
                    self._put("ResponseStarted")
        elif self._code >= 400:
            if not self._refusal:
                self._refusal = message.get("body", b"")[:_LONGEST_REFUSAL]
        elif self._audit.policy.has_answers:
            self._keep_answer(message.get("body", b""))
        return self._send(message)

    def _keep_answer(self, body: bytes) -> None:
        target = self._scope.get("target")
        is_long_running = target is not None and target[0] in _LONG_RUNNING
        if not is_long_running and len(self._answer) + len(body) <= LONGEST_BODY:
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
        if not self._was_received and not self._audit.policy.omits_receipt:
            self._was_received = True
            self._put("RequestReceived")

    def complete(self) -> None:
        """Put the event of a request that has ended; before it that of its receipt, if nobody got to know what it was about."""
        if not self._was_received and not self._audit.policy.omits_receipt:
            self._put("RequestReceived")
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
                created=scope.get("created", b""),
                refusal=self._refusal,
                request=self._request if level >= Level.REQUEST else b"",
                response=self._answer if level == Level.REQUEST_RESPONSE else b"",
                omits_managed_fields=found.omits_managed_fields,
            )
        )

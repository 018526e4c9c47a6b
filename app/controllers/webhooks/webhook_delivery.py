"""Delivery of webhooks: the leader sends each message of the outbox until its receiver has taken it, at least once.

A message is deleted after the receiver has answered 2xx. A leader that dies in between leaves it there, and the next one sends it
again under the same id. A slow receiver delays no other: attempts go on beside the next runs.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime, timedelta

from app.controllers.webhooks.webhook_client import DeliveryError, WebhookClient
from app.kinds.batch.job import KIND as JOBS
from app.kinds.core.secret import KIND as SECRETS
from app.kinds.core.secret import Secret
from app.machinery.durations import human_duration
from app.plans.plan import Emit, Plan
from app.plans.webhooks import LABEL, MOST_ATTEMPTS, WebhookError, headers, next_attempt_at, read_webhook
from app.registry.codec import decode, key_of
from app.registry.plan_writer import write_set
from app.store import Conflict, OutcomeUnknown, Store, Unavailable, Write
from app.store.webhook_outbox import Delivery, WebhookOutbox
from app.structured_logging import Logger, ObjectFields, object_fields

logger = Logger(__name__)
AT_ONCE = 64  # attempts
OF_EACH = 4  # webhook, attempts at once
KEPT = timedelta(days=7)  # after which a message that was given up is deleted
RECHECK = timedelta(seconds=10)  # between looks at the database: a former leader may have added messages
_WAIT_SECONDS = 0.5  # of a run for its attempts
COMPONENT = "webhook-controller"


class WebhookDelivery:
    """`commit` writes events for the leader only."""

    name = "webhook delivery"
    interval = timedelta(seconds=1)

    def __init__(
        self,
        store: Store,
        outbox: WebhookOutbox,
        client: WebhookClient,
        commit: Callable[[Sequence[Write]], Awaitable[list[int]]],
    ) -> None:
        self._store = store
        self._outbox = outbox
        self._client = client
        self._commit = commit
        self._attempts: dict[str, asyncio.Task[bool]] = {}  # by message
        self._forget_at: datetime | None = None
        self._nothing_until: datetime | None = None
        self._known_additions = 0

    async def run_once(self, now: datetime) -> dict[str, int]:
        due = await self._find_due(now)
        secrets = await self._read_secrets(due)
        for each in due:
            if each.id not in self._attempts and len(self._attempts) < AT_ONCE:
                attempt = self._attempt(each, secrets.get((each.namespace, each.webhook)), now)
                self._attempts[each.id] = asyncio.create_task(attempt)
        if self._forget_at is None or now >= self._forget_at:
            self._forget_at = now + timedelta(minutes=1)
            await self._outbox.forget(now - KEPT)
        return {"delivered webhooks": await self._collect()}

    async def _find_due(self, now: datetime) -> Sequence[Delivery]:
        """The messages to send. The database is not asked while none can be due."""
        additions = self._outbox.additions
        is_idle = not self._attempts and additions == self._known_additions
        if is_idle and self._nothing_until is not None and now < self._nothing_until:
            return ()
        due = await self._outbox.due(now, OF_EACH, AT_ONCE + len(self._attempts))
        if due or self._attempts:
            self._nothing_until = None
        else:
            next_at = await self._outbox.next_at()
            self._nothing_until = min(next_at or now + RECHECK, now + RECHECK)
        self._known_additions = additions
        return due

    async def _collect(self) -> int:
        """Count the successful ones of the attempts that have ended. Waits a moment for the others."""
        try:
            if self._attempts:
                await asyncio.wait(self._attempts.values(), timeout=_WAIT_SECONDS)
        except asyncio.CancelledError:
            for task in self._attempts.values():
                task.cancel()
            raise
        ended = {key: task for key, task in self._attempts.items() if task.done()}
        for key in ended:
            del self._attempts[key]
        return sum(task.result() for task in ended.values() if not task.cancelled())

    async def _read_secrets(self, due: Iterable[Delivery]) -> dict[tuple[str, str], Secret]:
        keys = {key_of(SECRETS, each.namespace, each.webhook) for each in due}
        heads = await self._store.get_many(list(keys)) if keys else {}
        found = {(key.namespace, key.name): decode(SECRETS, head) for key, head in heads.items()}
        return {key: secret for key, secret in found.items() if isinstance(secret, Secret)}

    async def _attempt(self, delivery: Delivery, secret: Secret | None, now: datetime) -> bool:
        """Send a message, and note what came of it; whether it was taken. Raises nothing: the next run tries again."""
        try:
            if secret is None or secret.metadata.labels.get(LABEL) != "true":
                await self._outbox.delete(delivery.id)
                return False
            try:
                await self._send(delivery, secret, now)
            except (DeliveryError, WebhookError) as error:
                await self._note_failure(delivery, str(error), now)
                return False
            await self._outbox.delete(delivery.id)
        except (Unavailable, OutcomeUnknown, Conflict):
            return False
        except Exception as error:
            logger.warning("webhook attempt failed; retrying", **_fields(delivery), traceback_of=error)
            return False
        return True

    async def _send(self, delivery: Delivery, secret: Secret, now: datetime) -> None:
        webhook = read_webhook(secret)
        await self._client.post(webhook.url, headers(webhook, delivery.id, delivery.body, now), delivery.body)

    async def _note_failure(self, delivery: Delivery, error: str, now: datetime) -> None:
        """The first and the last failure have an event on the Job."""
        attempts = delivery.attempts + 1
        at = next_attempt_at(delivery.id, attempts, now)
        if at is None:
            await self._outbox.give_up(delivery.id, attempts, now, error)
            logger.warning("webhook given up", **_fields(delivery), error=error)
            await self._explain(delivery, f"{error}; given up after {attempts} attempts", now)
            return
        await self._outbox.retry(delivery.id, attempts, at, error)
        if attempts == 1:
            pause = human_duration(at - now)
            await self._explain(delivery, f"{error}; tried again in {pause}, {MOST_ATTEMPTS} times in all", now)

    async def _explain(self, delivery: Delivery, why: str, now: datetime) -> None:
        head = await self._store.get(key_of(JOBS, delivery.namespace, delivery.job))
        if head is None or head.uid != delivery.job_uid:
            return
        text = f"Webhook {delivery.webhook} has not taken the message: {why}"
        emit = Emit("Warning", "WebhookFailed", text, decode(JOBS, head))
        await self._commit(write_set(Plan((emit,)), (), COMPONENT, now))


def _fields(delivery: Delivery) -> ObjectFields:
    """The Secret, for the log."""
    return object_fields("secrets", delivery.namespace, delivery.webhook)

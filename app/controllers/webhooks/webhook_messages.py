"""Messages for webhooks: the leader writes one to the outbox for each Job that ends and each webhook that wants to know.

Webhooks are Secrets with a label. They are read when a Secret has changed. While there is none, Jobs are not read.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import cast

import msgspec

from app.kinds.batch.job import Job, is_finished
from app.kinds.core.secret import KIND as SECRETS
from app.kinds.core.secret import Secret
from app.machinery.decoding.decode import decode_stored
from app.plans.webhooks import LABEL, Webhook, WebhookError, is_told, message, read_webhook
from app.registry.codec import decode
from app.store import Store
from app.store.webhook_outbox import JobVersion, NewDelivery, WebhookOutbox
from app.structured_logging import Logger, object_fields

logger = Logger(__name__)
BATCH = 100  # versions of Jobs in one transaction
OF_A_NAMESPACE = 10  # webhooks; more are ignored
MOST_PENDING = 10_000  # messages of a webhook; more are dropped
SAVED_EVERY = timedelta(minutes=1)  # without a message, after which the cursor is saved nevertheless
_ENDED = (b'"type":"Complete"', b'"type":"Failed"')  # in the stored JSON of a Job that has ended


class NamedWebhook(msgspec.Struct, frozen=True):
    """A webhook with the Secret that describes it."""

    secret: Secret
    webhook: Webhook


class WebhookMessages:
    name = "webhook messages"
    interval = timedelta(seconds=1)

    def __init__(self, store: Store, outbox: WebhookOutbox) -> None:
        self._store, self._outbox = store, outbox
        self._cursor: int | None = None
        self._saved = 0
        self._save_at: datetime | None = None
        self._secrets_at = -1  # revision of the Secrets that were read
        self._webhooks: dict[str, list[NamedWebhook]] = {}  # by namespace

    async def run_once(self, now: datetime) -> dict[str, int]:
        state = await self._outbox.state()
        if self._cursor is None:
            # Without a cursor, all of history: a Job may have ended before the first controllers got here.
            self._cursor = self._saved = state.cursor or 0
            if state.cursor is None:  # from now on, compaction waits for it
                await self._outbox.add((), self._cursor, now, MOST_PENDING)
        if state.secrets != self._secrets_at:
            self._webhooks = await self._read_webhooks()
            self._secrets_at = state.secrets
        if not self._webhooks:
            self._cursor = max(self._cursor, state.revision)
        written = 0
        while self._cursor < state.revision:
            written += await self._read_jobs(self._cursor, state.revision, now)
        await self._save_cursor(now)
        return {"webhook messages": written}

    async def _read_jobs(self, after: int, up_to: int, now: datetime) -> int:
        """Write the messages about the next Jobs that ended; returns how many.

        Not beyond `up_to`: the webhooks that were read may be older than what came after it.
        """
        versions = await self._outbox.versions(after, up_to, BATCH, _ENDED)
        cursor = versions[-1].revision if versions else up_to
        deliveries = [each for version in versions if version.body is not None for each in self._deliveries(version)]
        added = 0
        if deliveries:
            added = await self._outbox.add(deliveries, cursor, now, MOST_PENDING)
            self._saved = cursor
        if added < len(deliveries):
            logger.warning("webhook messages dropped: too many are pending", count=len(deliveries) - added)
        self._cursor = cursor
        return added

    def _deliveries(self, version: JobVersion) -> Iterator[NewDelivery]:
        job = _decode(version.revision, version.body)
        if job is None or not is_finished(job):
            return
        before = _decode(version.revision, version.before)
        if before is not None and is_finished(before):
            return
        for each in self._webhooks.get(job.metadata.namespace, ()):
            meta = each.secret.metadata
            if is_told(each.webhook, meta.name, meta.creation_timestamp, job):
                made = message(meta.name, meta.uid, job)
                job_meta = job.metadata
                yield NewDelivery(made.id, meta.namespace, meta.name, job_meta.name, job_meta.uid, made.body)

    async def _read_webhooks(self) -> dict[str, list[NamedWebhook]]:
        found: dict[str, list[NamedWebhook]] = {}
        heads = await self._store.get_many(await self._outbox.secrets(LABEL, OF_A_NAMESPACE))
        for key, head in heads.items():
            secret = cast("Secret", decode(SECRETS, head))
            try:
                found.setdefault(key.namespace, []).append(NamedWebhook(secret, read_webhook(secret)))
            except WebhookError as error:
                logger.warning("Secret is no webhook; ignored", **object_fields(*key), error=error)
        return found

    async def _save_cursor(self, now: datetime) -> None:
        self._save_at = self._save_at or now + SAVED_EVERY
        if self._cursor is not None and now >= self._save_at and self._cursor > self._saved:
            await self._outbox.add((), self._cursor, now, MOST_PENDING)
            self._saved, self._save_at = self._cursor, now + SAVED_EVERY


def _decode(revision: int, body: bytes | None) -> Job | None:
    """None for one that cannot be read, which must not hold back the messages about all others."""
    try:
        return None if body is None else decode_stored(body, Job)
    except Exception as error:
        logger.error("cannot decode a Job; no webhook is told of it", revision=revision, traceback_of=error)
        return None

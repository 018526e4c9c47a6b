"""Webhooks: which Secret is one, what it is told of a Job that has ended, how that is signed, and when it is tried again. Pure.

Called by `app.controllers.webhooks.webhook_messages` and `.webhook_delivery`. Headers, identifiers and signatures are those of
Standard Webhooks (https://www.standardwebhooks.com), version 1.0.0.
"""

import base64
import binascii
import hmac
from datetime import datetime, timedelta
from hashlib import sha256
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any
from urllib.parse import urlsplit

import msgspec

from app.kinds.batch.job import Job, is_true
from app.kinds.core.secret import Secret
from app.machinery.durations import FIRST
from app.machinery.meta.conditions import condition
from app.plans.annotation_state import moment

LABEL = "jobplane.dev/webhook"  # on a Secret, with the value "true"; as an annotation on a Job: the only one to be told
EVENTS = ("Complete", "Failed")
MOST_ATTEMPTS = 80  # three days
MOST_TEXT = 1024  # characters of a condition's message
MOST_BYTES = 64 << 10  # of a message; labels are left out of one that has more
_FIRST_DELAY, _LONGEST_DELAY = timedelta(seconds=5), timedelta(hours=1)
_MOST_URL = 2048
# Where clouds (AWS, Google, Alibaba, Azure) tell a machine its credentials, if that is no link-local address.
_REFUSED = frozenset(map(ip_address, ("fd00:ec2::254", "fd20:ce::254", "100.100.100.200", "168.63.129.16")))
_NAT64 = ip_network("64:ff9b::/96")  # IPv6 addresses with an IPv4 address at their end


class WebhookError(ValueError):
    """The Secret is no webhook; says why, without its values."""


class Webhook(msgspec.Struct, frozen=True):
    """A receiver in a namespace."""

    url: str
    key: bytes = b""  # with which messages are signed
    events: frozenset[str] = frozenset(EVENTS)


def read_webhook(secret: Secret) -> Webhook:
    """The webhook that a Secret describes. Raises WebhookError."""
    try:
        values = {
            key: value.decode().strip() for key, value in secret.data.items() if key in ("url", "secret", "events")
        }
    except UnicodeDecodeError:
        raise WebhookError("its keys url, secret and events must be text") from None
    url, events = values.get("url", ""), values.get("events", "")
    _check_url(url)
    if not values.get("secret"):
        raise WebhookError("its key secret is missing: messages are signed with it")
    wanted = frozenset(each.strip() for each in events.split(",")) if events else frozenset(EVENTS)
    if not wanted <= set(EVENTS):
        raise WebhookError(f"its key events may name {' and '.join(EVENTS)}, separated by a comma")
    return Webhook(url, _key(values["secret"]), wanted)


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        good = False
    if not good or len(url) > _MOST_URL or not url.isascii() or not url.isprintable():
        raise WebhookError("its key url must be an http or https URL")
    if parts.username is not None or parts.password is not None:
        raise WebhookError("its key url may not contain a user or a password")


def _key(secret: str) -> bytes:
    """`whsec_` and base64, as Standard Webhooks has it; any other text is its own bytes."""
    if not secret.startswith("whsec_"):
        return secret.encode()
    try:
        return base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except binascii.Error:
        raise WebhookError("its key secret must have base64 after whsec_") from None


class Message(msgspec.Struct, frozen=True):
    """Message about one Job to one webhook. Its id is the same however often it is built or sent."""

    id: str
    webhook: str
    body: bytes


def event_of(job: Job) -> tuple[str, datetime] | None:
    """Return how the Job ended, Complete or Failed, and when; None while it has not."""
    for event in EVENTS:
        if is_true(job, event):
            found = condition(job.status.conditions, event)
            at = found.last_transition_time if found else None
            return event, at or job.status.completion_time or job.metadata.creation_timestamp or FIRST
    return None


def is_told(webhook: Webhook, name: str, created_at: datetime | None, job: Job) -> bool:
    """Return whether the webhook wants the end of this Job. A webhook that is younger than the end does not."""
    ended = event_of(job)
    if ended is None or ended[0] not in webhook.events or (created_at is not None and ended[1] < created_at):
        return False
    return job.metadata.annotations.get(LABEL, name) == name


def message(name: str, secret_uid: str, job: Job) -> Message:
    """The message about a Job that has ended, to the webhook of this name."""
    event, at = event_of(job) or ("", FIRST)
    found = condition(job.status.conditions, event)
    meta, status = job.metadata, job.status
    data: dict[str, Any] = {
        "namespace": meta.namespace,
        "name": meta.name,
        "uid": meta.uid,
        "labels": meta.labels,
        "result": event,
        "reason": found.reason if found else "",
        "message": found.message[:MOST_TEXT] if found else "",
        "startTime": moment(status.start_time) if status.start_time else None,
        "endTime": moment(at),
        "succeeded": status.succeeded or 0,
        "failed": status.failed or 0,
    }
    body = _encode(event, at, data)
    if len(body) > MOST_BYTES:
        body = _encode(event, at, data | {"labels": {}})
    digest = sha256(f"{secret_uid}/{meta.uid}/{event}".encode()).hexdigest()
    return Message(f"msg_{digest[:32]}", name, body)


def _encode(event: str, at: datetime, data: dict[str, Any]) -> bytes:
    return msgspec.json.encode({"type": f"job.{event.lower()}", "timestamp": moment(at), "data": data})


def headers(webhook: Webhook, message_id: str, body: bytes, now: datetime) -> dict[str, str]:
    """The headers of an attempt: the signature covers identifier, time and body."""
    seconds = str(int(now.timestamp()))
    signature = hmac.digest(webhook.key, f"{message_id}.{seconds}.".encode() + body, sha256)
    return {
        "content-type": "application/json",
        "user-agent": "jobplane-webhooks/1",
        "webhook-id": message_id,
        "webhook-timestamp": seconds,
        "webhook-signature": f"v1,{base64.b64encode(signature).decode()}",
    }


def next_attempt_at(message_id: str, attempts: int, now: datetime) -> datetime | None:
    """Return when to try again after so many attempts failed; None if that was the last. Messages differ by up to a tenth."""
    if attempts >= MOST_ATTEMPTS:
        return None
    delay = min(_FIRST_DELAY * 2 ** min(attempts - 1, 20), _LONGEST_DELAY)
    spread: float = int.from_bytes(sha256(f"{message_id}/{attempts}".encode()).digest()[:4]) / 2**32
    at: datetime = now + delay * (1 + spread / 10)
    return at


def is_refused(address: str, *, allows_local: bool) -> bool:
    """Return whether this address is refused: it is this machine's own, or answers for the machine's credentials."""
    ip: IPv4Address | IPv6Address = ip_address(address.partition("%")[0])
    if isinstance(ip, IPv6Address) and ip.ipv4_mapped is not None:
        ip = ip.ipv4_mapped
    elif ip in _NAT64:
        ip = IPv4Address(int(ip) & 0xFFFFFFFF)
    if ip.is_loopback:
        return not allows_local
    is_special = ip.is_link_local or ip.is_unspecified or ip.is_multicast or ip.is_reserved
    return is_special or ip in _REFUSED

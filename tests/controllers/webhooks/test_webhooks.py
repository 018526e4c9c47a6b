"""Webhooks on a real database, with a real HTTP receiver: down, failing, slow, and with controllers that die in between."""

import asyncio
import base64
import hashlib
import hmac
import os
import re
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from app.controllers.retention.job_recorder import JobRecorder
from app.controllers.webhooks.webhook_client import WebhookClient
from app.controllers.webhooks.webhook_delivery import RECHECK, WebhookDelivery
from app.controllers.webhooks.webhook_messages import MOST_PENDING, WebhookMessages
from app.kinds.core.secret import KIND as SECRETS
from app.kinds.core.secret import Secret
from app.machinery.base import Condition, ObjectMeta
from app.plans.webhooks import LABEL, MOST_ATTEMPTS, WebhookError, is_refused, next_attempt_at, read_webhook
from app.registry.bootstrap import bootstrap
from app.registry.verbs import objects
from app.registry.verbs.deletion import Demand
from app.registry.verbs.objects import Registry
from app.store import open_store
from app.store.compaction import compact
from app.store.encryption.encryption import MARK
from app.store.encryption.master_keys import KeyFile
from app.store.webhook_outbox import WebhookOutbox
from tests.build import NOW
from tests.conftest import Clock
from tests.controllers.running import events
from tests.controllers.webhooks.receiver import Receiver, Request, receiving
from tests.registry.examples import JOBS, a_job, create
from tests.store.encryption.test_master_keys import key_file, new_line

KEY = "correct horse battery staple"
ROOT = Path(__file__).parents[3]


class Webhooks:
    """Both tasks of the leader; a new one is like a new leader."""

    def __init__(self, registry: Registry, **client: Any) -> None:
        self.registry = registry
        self.outbox = WebhookOutbox(registry.store.pool)
        self.messages = WebhookMessages(registry.store, self.outbox)
        sender = WebhookClient(**({"allows_local": True} | client))
        self.delivery = WebhookDelivery(registry.store, self.outbox, sender, registry.store.commit)

    async def run(self) -> None:
        """Once, and until nothing is on its way."""
        await self.messages.run_once(self.registry.now())
        await self.delivery.run_once(self.registry.now())
        while self.delivery._attempts:
            await self.delivery._collect()

    async def waiting(self) -> list[tuple[str, int, str]]:
        sql = "select job, attempts, error from webhook_deliveries order by job"
        return [tuple(row) for row in await self.registry.store.pool.fetch(sql)]


@pytest.fixture
async def webhooks(registry: Registry) -> Webhooks:
    made = Webhooks(registry)
    await made.run()  # the cursor begins here
    return made


async def a_webhook(registry: Registry, url: str, name: str = "chat", **data: str) -> Secret:
    values = {"url": url, "secret": KEY} | data
    secret = Secret(metadata=ObjectMeta(name=name, labels={LABEL: "true"}), string_data=values)
    made: Secret = await create(registry, SECRETS, secret)
    return made


async def ends(registry: Registry, name: str = "pi", result: str = "Complete", **metadata: Any) -> None:
    """A Job is made and ends, by one write each, as its controller does it."""
    await create(registry, JOBS, a_job(name, metadata))
    await finish(registry, name, result)


async def finish(registry: Registry, name: str, result: str) -> None:
    def edit(job: Any) -> Any:
        when = {"status": "True", "last_transition_time": registry.now(), "reason": "Because", "message": "it did"}
        conditions = (Condition(type=result, **when), Condition(type="Finished", **when))
        return replace(job, status=replace(job.status, conditions=conditions, start_time=NOW, failed=2))

    await objects.rewrite(registry, JOBS, "default", name, edit)


def told(receiver: Receiver) -> list[tuple[str, str]]:
    found = [msgspec.json.decode(each.body) for each in receiver.requests]
    return [(each["type"], each["data"]["name"]) for each in found]


def signature(request: Request, key: bytes = KEY.encode()) -> str:
    text = f"{request.headers['webhook-id']}.{request.headers['webhook-timestamp']}.".encode() + request.body
    return "v1," + base64.b64encode(hmac.new(key, text, hashlib.sha256).digest()).decode()


async def test_the_end_of_a_job_is_told_once_and_signed(registry: Registry, webhooks: Webhooks) -> None:
    async with receiving() as receiver:
        await a_webhook(registry, receiver.url)
        await ends(registry, "good")
        await ends(registry, "bad", "Failed", labels={"team": "x"})
        for _ in range(2):
            await webhooks.run()
        await Webhooks(registry).run()  # another leader

    assert sorted(told(receiver)) == [("job.complete", "good"), ("job.failed", "bad")]
    assert {each.headers["webhook-signature"] for each in receiver.requests} == set(map(signature, receiver.requests))
    assert len({each.headers["webhook-id"] for each in receiver.requests}) == 2
    assert {each.headers["host"] for each in receiver.requests} == {f"127.0.0.1:{receiver.port}"}
    data = next(msgspec.json.decode(each.body)["data"] for each in receiver.requests if b'"bad"' in each.body)
    assert {key: data[key] for key in ("namespace", "result", "reason", "message", "failed", "endTime")} == {
        "namespace": "default",
        "result": "Failed",
        "reason": "Because",
        "message": "it did",
        "failed": 2,
        "endTime": "2026-07-24T12:00:00Z",
    }
    assert data["labels"]["team"] == "x"
    assert await webhooks.waiting() == []


async def test_webhooks_are_encrypted_secrets_like_others(dsn: str, clock: Clock, tmp_path: Path) -> None:
    keys = KeyFile(key_file(tmp_path / "keys", new_line()))
    async with open_store(dsn, keys=keys) as store, receiving() as receiver:
        registry = Registry(store, clock)
        await bootstrap(registry)
        webhooks = Webhooks(registry)
        await webhooks.run()
        await a_webhook(registry, receiver.url)
        bodies = await store.pool.fetch("select body from history where kind = 'secrets'")
        assert [row["body"].startswith(MARK) for row in bodies] == [True]
        await ends(registry)
        await webhooks.run()

    assert told(receiver) == [("job.complete", "pi")]


async def test_only_what_was_asked_for_is_told(registry: Registry, webhooks: Webhooks) -> None:
    async with receiving() as receiver, receiving() as other:
        await ends(registry, "before")
        registry.clock.move(seconds=1)
        await a_webhook(registry, receiver.url, events="Failed")
        await a_webhook(registry, other.url, "other")
        await ends(registry, "good")
        await ends(registry, "bad", "Failed")
        await ends(registry, "mine", "Failed", annotations={LABEL: "chat"})
        await webhooks.run()
        await objects.edit(registry, JOBS, "default", "good", lambda job: replace(job, metadata=_touched(job.metadata)))
        await webhooks.run()

    assert sorted(told(receiver)) == [("job.failed", "bad"), ("job.failed", "mine")]
    assert sorted(told(other)) == [("job.complete", "good"), ("job.failed", "bad")]


def _touched(meta: ObjectMeta) -> ObjectMeta:
    return replace(meta, annotations={"touched": "yes"})


async def test_a_job_that_is_gone_and_a_leader_that_was_away_lose_nothing(
    registry: Registry, webhooks: Webhooks
) -> None:
    async with receiving() as receiver:
        await a_webhook(registry, receiver.url)
        await ends(registry)
        await objects.delete(registry, JOBS, "default", "pi", Demand(propagation="Background"))
        await Webhooks(registry).run()

    assert told(receiver) == [("job.complete", "pi")]


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (500, "answered 500"),
        (301, "answered 301 (redirects are not followed)"),
        (None, "no answer within 10s"),
    ],
)
async def test_a_message_is_kept_and_tried_again(
    registry: Registry, webhooks: Webhooks, answer: int | None, error: str
) -> None:
    sender = Webhooks(registry, seconds=60 if answer else 10)  # in which a busy machine has delivered the request
    async with receiving(answer) as receiver:
        await a_webhook(registry, receiver.url)
        await ends(registry)
        await sender.run()
        await sender.run()  # too early
        assert await sender.waiting() == [("pi", 1, error)]
        assert len(receiver.requests) == 1
        receiver.answers = [200]
        registry.clock.move(seconds=6)
        await Webhooks(registry).run()

    assert told(receiver) == [("job.complete", "pi")] * 2
    assert {each.path for each in receiver.requests} == {"/hook"}
    assert len({each.headers["webhook-id"] for each in receiver.requests}) == 1
    assert len({each.headers["webhook-timestamp"] for each in receiver.requests}) == 2
    assert await sender.waiting() == []
    (text,) = [message for reason, message in await events(registry) if reason == "WebhookFailed"]
    assert text.startswith(f"Webhook chat has not taken the message: {error}; tried again in 5s")


async def test_messages_of_another_leader_are_found(registry: Registry, webhooks: Webhooks) -> None:
    """A former leader adds a message after the new leader has found none."""
    async with receiving() as receiver:
        await a_webhook(registry, receiver.url)
        await webhooks.delivery.run_once(registry.now())
        await ends(registry)
        await Webhooks(registry).messages.run_once(registry.now())
        assert await webhooks.waiting()

        registry.clock.move(seconds=RECHECK.total_seconds())
        await webhooks.delivery.run_once(registry.now())

    assert told(receiver) == [("job.complete", "pi")]


async def test_a_receiver_that_is_down_for_a_day_gets_everything(registry: Registry, webhooks: Webhooks) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    await a_webhook(registry, f"http://127.0.0.1:{port}/hook")
    for name in ("a", "b", "c"):
        await ends(registry, name)
    for _ in range(24):
        await webhooks.run()
        registry.clock.move(hours=1, minutes=10)
    waiting = await webhooks.waiting()
    assert [name for name, _, _ in waiting] == ["a", "b", "c"]
    assert {attempts for _, attempts, _ in waiting} == {24}

    async with receiving(port=port) as receiver:
        await webhooks.run()
    assert sorted(name for _, name in told(receiver)) == ["a", "b", "c"]


async def test_after_the_last_attempt_a_message_is_given_up(registry: Registry, webhooks: Webhooks) -> None:
    async with receiving(503) as receiver:
        await a_webhook(registry, receiver.url)
        await ends(registry)
        await webhooks.messages.run_once(registry.now())
        await registry.store.pool.execute("update webhook_deliveries set attempts = $1", MOST_ATTEMPTS - 1)
        for _ in range(2):
            await webhooks.run()
            registry.clock.move(days=2)
        assert len(receiver.requests) == 1
        assert await webhooks.waiting() == [("pi", MOST_ATTEMPTS, "answered 503")]
        text = f"Webhook chat has not taken the message: answered 503; given up after {MOST_ATTEMPTS} attempts"
        assert ("WebhookFailed", text) in await events(registry)

        registry.clock.move(days=7)
        await webhooks.run()
    assert await webhooks.waiting() == []


async def stopped(webhooks: Webhooks) -> None:
    """Break off what is on its way."""
    attempts = webhooks.delivery._attempts.values()
    for task in attempts:
        task.cancel()
    await asyncio.gather(*attempts, return_exceptions=True)


async def test_a_slow_receiver_delays_no_other(registry: Registry, webhooks: Webhooks) -> None:
    async with receiving(None) as slow, receiving() as quick:
        await a_webhook(registry, slow.url, "a-slow")
        await a_webhook(registry, quick.url, "quick")
        for number in range(12):
            await ends(registry, f"job-{number}")
        await webhooks.messages.run_once(registry.now())
        while len(quick.requests) < 12:
            await webhooks.delivery.run_once(registry.now())
        assert len(slow.requests) == 4
        await stopped(webhooks)

    assert len({name for _, name in told(quick)}) == 12


async def test_a_receiver_that_never_answers_does_not_hold_every_attempt(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has many messages, all of them older. As soon as one of its attempts has ended, the other receiver is told."""
    monkeypatch.setattr("app.controllers.webhooks.webhook_delivery.AT_ONCE", 4)
    webhooks = Webhooks(registry, seconds=0.5)
    await webhooks.run()
    async with receiving(None) as dead, receiving() as quick:
        await a_webhook(registry, dead.url, "dead")
        await a_webhook(registry, quick.url, "quick")
        for number in range(12):
            await ends(registry, f"old-{number}", annotations={LABEL: "dead"})
        await webhooks.messages.run_once(registry.now())
        registry.clock.move(seconds=1)
        await ends(registry, "new", annotations={LABEL: "quick"})
        await webhooks.messages.run_once(registry.now())
        while not quick.requests:
            await webhooks.delivery.run_once(registry.now())
        assert len(dead.requests) <= 7  # four, and those that began when these had ended, but for one
        await stopped(webhooks)


async def test_names_are_resolved_while_the_threads_of_others_are_busy(registry: Registry, webhooks: Webhooks) -> None:
    """And name servers that do not answer hold no thread that others need."""
    loop = asyncio.get_running_loop()
    begun, done = threading.Event(), threading.Event()

    def hold() -> None:
        begun.set()
        done.wait()

    loop.set_default_executor(ThreadPoolExecutor(1))
    holding = loop.run_in_executor(None, hold)
    try:
        async with receiving() as receiver:
            await a_webhook(registry, receiver.url)
            await ends(registry)
            assert begun.wait(60)
            await webhooks.run()
        assert told(receiver) == [("job.complete", "pi")]
    finally:
        done.set()
        await holding


async def test_a_webhook_that_is_new_misses_no_end(registry: Registry, webhooks: Webhooks) -> None:
    """Not even one that comes while the webhooks of before are being told."""
    async with receiving() as receiver:
        await a_webhook(registry, receiver.url, "first")
        await ends(registry, "before")
        state = await webhooks.outbox.state()
        await a_webhook(registry, receiver.url, "second")
        await ends(registry, "after")

        signs = (b'"type":"Complete"', b'"type":"Failed"')
        versions = await webhooks.outbox.versions(0, state.revision, 100, signs)
        assert max(each.revision for each in versions) <= state.revision
        await webhooks.run()

    assert sorted(name for _, name in told(receiver)) == ["after", "after", "before", "before"]


async def test_a_job_that_ended_before_the_first_controllers_came_is_told(registry: Registry) -> None:
    async with receiving() as receiver:
        await a_webhook(registry, receiver.url)
        await ends(registry)
        await Webhooks(registry).run()

    assert told(receiver) == [("job.complete", "pi")]


async def test_what_is_not_told_yet_is_not_compacted(registry: Registry, webhooks: Webhooks) -> None:
    """Controllers that were away for longer than the history is kept tell of all that ended meanwhile."""
    await JobRecorder(registry.store.job_record_writer).run_once(registry.now())
    async with receiving() as receiver:
        await a_webhook(registry, receiver.url)
        await ends(registry)
        await objects.delete(registry, JOBS, "default", "pi", Demand(propagation="Background"))
        await JobRecorder(registry.store.job_record_writer).run_once(registry.now())
        await compact(registry.store.pool, timedelta(0))

        await Webhooks(registry).run()

    assert told(receiver) == [("job.complete", "pi")]


async def test_a_job_that_cannot_be_read_holds_back_no_other(
    registry: Registry, webhooks: Webhooks, caplog: pytest.LogCaptureFixture
) -> None:
    async with receiving() as receiver:
        await a_webhook(registry, receiver.url)
        await ends(registry, "broken")
        broken = """replace(convert_from(h.body, 'UTF8'), '"spec":{', '"spec":3,"x":{')"""
        sql = f"""update versions v set body = convert_to({broken}, 'UTF8'), marks = h.marks from history h
            where h.revision = v.revision and h.name = 'broken'"""
        await registry.store.pool.execute(sql)
        await ends(registry, "good")
        await webhooks.run()

    assert told(receiver) == [("job.complete", "good")]
    assert "cannot decode a Job" in caplog.text


async def test_messages_that_were_given_up_make_room_for_new_ones(registry: Registry, webhooks: Webhooks) -> None:
    async with receiving() as receiver:
        await a_webhook(registry, receiver.url)
        await registry.store.pool.execute(
            """insert into webhook_deliveries (id, namespace, webhook, job, job_uid, body, next_at, failed_at)
            select number::text, 'default', 'chat', 'old', '', '', $2, $2 from generate_series(1, $1::int) number""",
            MOST_PENDING,
            NOW,
        )
        await ends(registry)
        await webhooks.run()

    assert told(receiver) == [("job.complete", "pi")]


async def test_with_the_secret_go_its_messages_and_with_a_new_one_comes_its_url(
    registry: Registry, webhooks: Webhooks
) -> None:
    async with receiving(500) as wrong, receiving() as right:
        await a_webhook(registry, wrong.url)
        await a_webhook(registry, wrong.url, "other")
        await ends(registry)
        await webhooks.run()
        await objects.delete(registry, SECRETS, "default", "other", Demand())
        await objects.edit(
            registry,
            SECRETS,
            "default",
            "chat",
            lambda old: replace(old, data={**old.data, "url": right.url.encode(), "secret": b"whsec_c2VjcmV0"}),
        )
        registry.clock.move(seconds=6)
        await webhooks.run()

    assert told(right) == [("job.complete", "pi")]
    assert right.requests[0].headers["webhook-signature"] == signature(right.requests[0], b"secret")
    assert await webhooks.waiting() == []


async def test_too_many_messages_are_not_kept(
    registry: Registry, webhooks: Webhooks, caplog: pytest.LogCaptureFixture
) -> None:
    await a_webhook(registry, "http://127.0.0.1:1/")
    await registry.store.pool.execute(
        """insert into webhook_deliveries (id, namespace, webhook, job, job_uid, body, next_at)
        select number::text, 'default', 'chat', 'old', '', '', $2 from generate_series(1, $1::int) number""",
        MOST_PENDING,
        NOW + timedelta(days=1),
    )
    await ends(registry)
    await webhooks.messages.run_once(registry.now())

    assert {name for name, _, _ in await webhooks.waiting()} == {"old"}
    assert "webhook messages dropped" in caplog.text


async def test_this_machine_is_refused_and_no_secret_is_told(
    registry: Registry, webhooks: Webhooks, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    strict = Webhooks(registry, allows_local=False)
    async with receiving() as receiver:
        for name, host in (("a", "127.0.0.1"), ("b", "localhost"), ("c", "[::1]"), ("d", "169.254.169.254")):
            await a_webhook(registry, f"http://{host}:{receiver.port}/hidden-path", name)
        await ends(registry)
        await strict.run()
        assert receiver.requests == []

    refused = "the host has an address to which webhooks may not send: loopback, link-local or reserved"
    assert {error for _, _, error in await strict.waiting()} == {refused}
    everything = caplog.text + str(await events(registry)) + str(await strict.waiting())
    assert KEY not in everything
    assert "hidden-path" not in everything


@pytest.mark.parametrize(
    ("address", "refused"),
    [
        ("127.0.0.1", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("169.254.169.254", True),
        ("fe80::1%eth0", True),
        ("::ffff:169.254.169.254", True),
        ("64:ff9b::a9fe:a9fe", True),
        ("64:ff9b::5db8:d822", False),
        ("fd00:ec2::254", True),
        ("fd20:ce::254", True),
        ("100.100.100.200", True),
        ("168.63.129.16", True),
        ("0.0.0.0", True),
        ("224.0.0.1", True),
        ("255.255.255.255", True),
        ("10.0.0.7", False),
        ("192.168.1.1", False),
        ("fd12::1", False),
        ("93.184.216.34", False),
        ("2606:2800:220:1::1", False),
    ],
)
def test_addresses(address: str, refused: bool) -> None:
    assert is_refused(address, allows_local=False) == refused


@pytest.mark.parametrize("address", ["169.254.169.254", "0.0.0.0", "::ffff:169.254.169.254"])
def test_what_answers_for_credentials_is_refused_under_every_setting(address: str) -> None:
    assert is_refused(address, allows_local=True)
    assert not is_refused("127.0.0.1", allows_local=True)


@pytest.mark.parametrize(
    ("data", "error"),
    [
        ({"url": "ftp://x"}, "url must be an http or https URL"),
        ({"url": "https://u:p@x"}, "user or a password"),
        ({"url": "https://x:99999"}, "url must be an http or https URL"),
        ({"url": ""}, "url must be"),
        ({"secret": ""}, "key secret is missing"),
        ({"secret": "whsec_???"}, "base64"),
        ({"events": "Complete,Started"}, "events may name Complete and Failed"),
    ],
)
def test_a_secret_that_is_no_webhook(data: dict[str, str], error: str) -> None:
    values = {"url": "https://x.example/", "secret": KEY} | data
    with pytest.raises(WebhookError, match=error) as found:
        read_webhook(Secret(data={key: value.encode() for key, value in values.items()}))

    assert KEY not in str(found.value)


def test_the_pauses_grow_and_end() -> None:
    pauses: list[timedelta] = []
    while (at := next_attempt_at("msg_1", len(pauses) + 1, NOW)) is not None:
        pauses.append(at - NOW)

    assert len(pauses) == MOST_ATTEMPTS - 1
    assert timedelta(seconds=5) <= pauses[0] < timedelta(seconds=6)
    assert all(later > earlier * 1.7 for earlier, later in pairwise(pauses[:9]))
    assert max(pauses) < timedelta(minutes=67)
    assert timedelta(days=2) < sum(pauses, timedelta()) < timedelta(days=4)


# --- real processes


def process(*command: str, **environment: str) -> Any:
    return asyncio.create_subprocess_exec(
        sys.executable, *command, env=os.environ | environment, stdout=asyncio.subprocess.PIPE
    )


async def controllers(dsn: str) -> asyncio.subprocess.Process:
    settings = {"JOBPLANE_DATABASE_URL": dsn, "JOBPLANE_WEBHOOKS_TO_THIS_HOST": "true"}
    made: asyncio.subprocess.Process = await process("-m", "app.main.cli", "controllers", **settings)
    return made


async def test_what_was_sent_by_controllers_that_were_killed_is_sent_again(registry: Registry, dsn: str) -> None:
    await Webhooks(registry).run()
    async with receiving(None, 204) as receiver:
        await a_webhook(registry, receiver.url)
        await ends(registry)
        for count in (1, 2):
            running = await controllers(dsn)
            try:
                await receiver.has(count)
            finally:
                running.send_signal(signal.SIGKILL)
                await running.wait()

    first, second = receiver.requests
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    assert first.body == second.body


def blocks(language: str) -> Sequence[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / "docs/webhooks.md").read_text(), re.DOTALL)


async def test_the_receiver_of_the_documentation(registry: Registry, webhooks: Webhooks) -> None:
    (script,) = blocks("python")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    registry.clock.now = _real_now()
    running = await process("-c", script, WEBHOOK_SECRET=KEY, PORT=str(port))
    try:
        await _answers(port)
        await a_webhook(registry, f"http://127.0.0.1:{port}/")
        await a_webhook(registry, f"http://127.0.0.1:{port}/", "wrong", secret="another")
        await ends(registry)
        await webhooks.run()
        line = await asyncio.wait_for(running.stdout.readline(), 30)
    finally:
        running.kill()
        await running.wait()

    assert line.decode().split() == ["job.complete", "default", "pi"]
    assert await webhooks.waiting() == [("pi", 1, "answered 401")]


def _real_now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)


async def _answers(port: int) -> None:
    async with asyncio.timeout(30):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.02)
                continue
            writer.close()
            return


def test_the_message_of_the_documentation_is_one(registry: Registry) -> None:
    (example,) = blocks("json")
    data = msgspec.json.decode(example)["data"]

    assert set(data) == {
        "namespace", "name", "uid", "labels", "result", "reason", "message", "startTime", "endTime", "succeeded", "failed",
    }  # fmt: skip

"""kill -9 of the active controllers at random moments while many Jobs end and are deleted: records and webhooks lose nothing.

What the API said of each Job when it was made, and what its pods were told to do, is compared with what was recorded and told.
JOBPLANE_TEST_RECORD_KILLS tells how often to kill.
"""

import asyncio
import json
import os
import random
import secrets
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from tests.controllers.webhooks.receiver import Receiver, receiving
from tests.e2e.cluster import until
from tests.e2e.parts import Parts
from tests.ui.jobs import make_job

KILLS = int(os.environ.get("JOBPLANE_TEST_RECORD_KILLS", "1"))
JOBS_BETWEEN_KILLS = 30
SECONDS = 120
NODES = 8
RECORDS = "/apis/history.jobplane.dev/v1/namespaces/default/jobs"
# What pods are told to do, and the exit codes of the attempts of such a Job, which may try twice.
FATES = {"seconds=0": [0], '{"exitCode": 3, "seconds": 0}': [3, 3], "seconds=0.3": [0]}


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Parts]:
    simulated = ("--runtime", "simulated", "--nodes", str(NODES))
    folder = tmp_path_factory.mktemp("recorded") / "data"
    with Parts(folder, *simulated, nodes=NODES, JOBPLANE_WEBHOOKS_TO_THIS_HOST="true") as running:
        yield running
    assert running.surprises() == ""


@contextmanager
def receiver() -> Iterator[Receiver]:
    """A receiver in a thread of its own, which answers every third request with an error."""
    ready: list[Any] = []
    begun = threading.Event()

    async def serve() -> None:
        end = asyncio.Event()
        answers = [204, 204, 503] * 10_000
        async with receiving(*answers) as made:
            ready.extend((made, asyncio.get_running_loop(), end))
            begun.set()
            await end.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert begun.wait(SECONDS)
    made, loop, end = ready
    try:
        yield made
    finally:
        loop.call_soon_threadsafe(end.set)
        thread.join()


def test_records_and_webhooks_survive_kills(parts: Parts) -> None:
    seed = secrets.randbits(32)
    chance = random.Random(seed)
    print(f"seed {seed}: {KILLS} kills")
    with parts.client() as client, receiver() as told:
        secret = {"url": told.url, "secret": "key"}
        labels = {"jobplane.dev/webhook": "true"}
        body = {"metadata": {"name": "hook", "labels": labels}, "stringData": secret}
        client.post("/api/v1/namespaces/default/secrets", json=body).raise_for_status()
        made = dict(_rounds(parts, client, chance))
        path = "/apis/batch/v1/namespaces/default/jobs"
        until(lambda: client.get(path).json()["items"] == [], SECONDS, "all Jobs have ended and are deleted")
        until(lambda: len(records := _records(client)) >= len(made) and all(
            each["deletionTime"] for each in records), SECONDS, "all are recorded")  # fmt: skip
        until(lambda: len(_taken(told)) >= len(made), SECONDS, "all are told")
        found = _records(client)

    assert Counter(each["metadata"]["uid"] for each in found) == Counter(made.keys())
    for each in found:
        codes = FATES[made[each["metadata"]["uid"]]]
        # One exit code for each pod that the Job has counted, and no pod that it has not.
        assert [attempt["exitCode"] for attempt in each["attempts"]] == codes, each
        assert each["result"] == ("Failed" if any(codes) else "Complete")
        assert each["attemptsOmitted"] == 0
    results = {each["metadata"]["uid"]: each["result"] for each in found}
    assert _taken(told) == results
    assert len({request.headers["webhook-id"] for request in told.requests}) == len(made)


def _rounds(parts: Parts, client: httpx.Client, chance: random.Random) -> Iterator[tuple[str, str]]:
    """Make Jobs, and kill the controllers in the middle of them; yields the UID of each Job and its pods' fate."""
    for number in range(KILLS + 1):
        for place in range(JOBS_BETWEEN_KILLS):
            fate = chance.choice(list(FATES))
            job = make_job(
                client, "default", f"job-{number}-{place}", fate, backoffLimit=1, ttlSecondsAfterFinished=0,
                podReplacementPolicy="Failed",
            )  # fmt: skip
            yield job["metadata"]["uid"], fate
        if number < KILLS:
            time.sleep(chance.uniform(0, 3))  # so that it is at work, at whatever it is
            (controllers,) = [each.pid for each in parts.processes() if each.command.endswith(" controllers")]
            parts.replace(controllers)


def _records(client: httpx.Client) -> list[dict[str, Any]]:
    found, token = [], None
    while token != "":
        page = client.get(RECORDS, params={"limit": 200, "continue": token or ""}).json()
        found += page["items"]
        token = page["metadata"].get("continue", "")
    return found


def _taken(told: Receiver) -> dict[str, str]:
    """The result that was told of each Job, by UID."""
    found = [json.loads(each.body)["data"] for each in list(told.requests)]
    return {each["uid"]: each["result"] for each in found}

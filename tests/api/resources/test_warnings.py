"""What a client is warned of, and when: of what it writes, not of what its status is written beside."""

from typing import Any

import httpx
import pytest
from msgspec.structs import replace

from app.kinds import by_name
from app.registry.verbs import objects
from app.registry.verbs.objects import Registry
from tests.registry.examples import create, example

CRON_JOBS = by_name("batch", "CronJob")
PATH = "/apis/batch/v1/namespaces/default/cronjobs/nightly"
MERGE = {"Content-Type": "application/merge-patch+json"}
ZONE = '299 - "CRON_TZ or TZ used in spec.schedule is not officially supported, see '


@pytest.fixture
async def with_zone(registry: Registry, admin: httpx.AsyncClient) -> dict[str, Any]:
    """A CronJob of the time when a zone could be a part of a schedule."""
    await create(registry, CRON_JOBS, example(CRON_JOBS))
    await objects.rewrite(registry, CRON_JOBS, "default", "nightly", _with_zone)
    found: dict[str, Any] = (await admin.get(PATH)).json()
    return found


def _with_zone(old: Any) -> Any:
    return replace(old, spec=replace(old.spec, schedule="TZ=UTC 30 3 * * *", time_zone=None))


@pytest.mark.parametrize("where", ["", "/status"], ids=["the main resource warns", "the status does not"])
async def test_a_zone_in_the_schedule(admin: httpx.AsyncClient, with_zone: dict[str, Any], where: str) -> None:
    patch = {"metadata": {"labels": {"a": "b"}}}
    answers = [
        await admin.put(f"{PATH}{where}", json=with_zone),
        await admin.patch(f"{PATH}{where}", json=patch, headers=MERGE),
    ]

    assert [answer.status_code for answer in answers] == [200, 200]
    warned = [answer.headers.get("Warning", "").startswith(ZONE) for answer in answers]
    assert warned == [not where, not where]

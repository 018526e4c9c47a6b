"""The scrape of an API process: who may read it, and what its numbers say of requests, commits and the database."""

import asyncio

import httpx
import pytest

from app.api.auth.authenticator import AUTHENTICATED, User
from app.api.auth.tokens import issue
from app.registry.verbs.objects import Registry
from tests.conftest import NO_TLS
from tests.metrics.promtool import check_metrics
from tests.metrics.test_registry import samples

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
OF_CONFIGMAPS = (
    'dry_run="{dry}",group="",version="v1",resource="configmaps",subresource="",scope="{scope}",component="apiserver"'
)


def requests(verb: str, scope: str, code: int, dry: str = "") -> str:
    labels = OF_CONFIGMAPS.format(dry=dry, scope=scope)
    return f'apiserver_request_total{{verb="{verb}",{labels},code="{code}"}}'


async def scrape(client: httpx.AsyncClient) -> dict[str, float]:
    answer = await client.get("/metrics")
    assert answer.status_code == 200
    return samples(answer.content)


@pytest.mark.parametrize(
    ("groups", "code"), [((), 401), ((AUTHENTICATED,), 403), (("system:monitoring", AUTHENTICATED), 200)]
)
async def test_only_those_who_monitor_may_read_it(
    registry: Registry, url: str, groups: tuple[str, ...], code: int
) -> None:
    token = await issue(registry, User(name="prometheus", groups=groups)) if groups else "nix"
    async with httpx.AsyncClient(base_url=url, verify=NO_TLS, headers={"Authorization": f"Bearer {token}"}) as client:
        answer = await client.get("/metrics")

    assert answer.status_code == code


async def test_a_scrape_satisfies_prometheus(admin: httpx.AsyncClient) -> None:
    await admin.post(CONFIGMAPS, json={"metadata": {"name": "a"}})
    answer = await admin.get("/metrics")

    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    check_metrics(answer.text)


async def test_requests_are_counted_by_what_they_were_about(admin: httpx.AsyncClient) -> None:
    await admin.post(CONFIGMAPS, json={"metadata": {"name": "a"}})
    await admin.post(f"{CONFIGMAPS}?dryRun=All", json={"metadata": {"name": "b"}})
    for path in (CONFIGMAPS, f"{CONFIGMAPS}/a", f"{CONFIGMAPS}/a", f"{CONFIGMAPS}/nix", "/api/v1/configmaps", "/nix"):
        await admin.get(path)
    await admin.patch(f"{CONFIGMAPS}/a", json={}, headers={"Content-Type": "application/merge-patch+json"})
    await admin.put(f"{CONFIGMAPS}/a", json={"metadata": {"name": "other"}})
    await admin.delete(CONFIGMAPS)
    await admin.request("PROPFIND", CONFIGMAPS)
    found = await scrape(admin)

    expected = {
        requests("POST", "namespace", 201): 1,
        requests("POST", "namespace", 201, "All"): 1,
        requests("LIST", "namespace", 200): 1,
        requests("LIST", "cluster", 200): 1,
        requests("GET", "resource", 200): 2,
        requests("GET", "resource", 404): 1,
        requests("PATCH", "resource", 200): 1,
        requests("PUT", "resource", 400): 1,
        requests("DELETECOLLECTION", "namespace", 200): 1,
    }
    assert {name: found.get(name) for name in expected} == expected
    count = f'apiserver_request_duration_seconds_count{{verb="GET",{OF_CONFIGMAPS.format(dry="", scope="resource")}}}'
    assert found[count] == 3
    assert [value for name, value in found.items() if 'verb="other"' in name and 'code="405"' in name] == [1]


async def test_words_of_clients_make_no_labels(admin: httpx.AsyncClient) -> None:
    for word in ("EVIL", "evil2"):
        await admin.get(f"{CONFIGMAPS}/a/{word}")
        await admin.get(f"/{word}")
        await admin.get(f"/apis/agents.jobplane.dev/v1/{word}")
        await admin.get(f"/apis/logs.jobplane.dev/v1/namespaces/default/logs/{word}")
    text = (await admin.get("/metrics")).text

    assert "evil" not in text.lower()
    assert 'group="logs.jobplane.dev",version="v1",resource="logs"' in text


async def test_a_watch_counts_while_it_is_open(admin: httpx.AsyncClient) -> None:
    name = (
        'apiserver_longrunning_requests{verb="WATCH",group="",version="v1",resource="configmaps",subresource="",'
        'scope="namespace",component="apiserver"}'
    )
    async with admin.stream("GET", f"{CONFIGMAPS}?watch=1") as watch:
        await admin.post(CONFIGMAPS, json={"metadata": {"name": "a"}})
        async with asyncio.timeout(60):
            lines = watch.aiter_lines()  # held: the watch ends with it
            await anext(lines)
            during = await scrape(admin)
    async with asyncio.timeout(60):
        while (after := await scrape(admin))[name]:
            pass

    assert (during[name], after[requests("WATCH", "namespace", 200)]) == (1, 1)
    assert during['apiserver_current_inflight_requests{request_kind="readOnly"}'] == 1  # the scrape itself
    assert not [each for each in after if each.startswith("apiserver_request_duration") and "WATCH" in each]


async def test_commits_and_the_database_are_measured(registry: Registry, admin: httpx.AsyncClient) -> None:
    for _ in range(2):
        await admin.post(CONFIGMAPS, json={"metadata": {"name": "first"}})  # the second is refused
    before = await scrape(admin)
    for _ in range(2):
        await admin.post(CONFIGMAPS, json={"metadata": {"name": "a"}})
    found = await scrape(admin)

    committed, refused = (f'jobplane_write_sets_total{{result="{result}"}}' for result in ("committed", "refused"))
    assert found[committed] == before[committed] + 1
    assert found[refused] == before[refused] + 1
    assert found["jobplane_commit_duration_seconds_count"] == before["jobplane_commit_duration_seconds_count"] + 2
    assert found["jobplane_revision"] == await registry.revision()
    assert (found["jobplane_change_feed_lag_revisions"], found["jobplane_change_feed_healthy"]) == (0, 1)
    assert found['apiserver_storage_size_bytes{storage_cluster_id="postgres"}'] > 1 << 20
    assert found['jobplane_table_size_bytes{table="versions"}'] > 0
    assert found['jobplane_scrape_collector_success{collector="database"}'] == 1

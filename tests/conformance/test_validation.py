"""What is refused, as a client sees it over HTTP: code, reason, message and causes of every row of the tables.

The tables are those that the kinds are tested with. One API serves them all; every row has a namespace of its own.
"""

import re
from collections.abc import AsyncIterator
from itertools import count
from secrets import token_hex
from typing import Any

import httpx
import msgspec
import pytest
import pytest_asyncio
from msgspec.structs import replace

from app.api.auth.authenticator import MASTERS, User
from app.api.auth.tokens import issue
from app.kinds.batch.cronjob import KIND as CRON_JOBS
from app.machinery.base import Kind
from app.machinery.name_validation import dns_subdomain
from app.registry.bootstrap import bootstrap
from app.registry.verbs import objects
from app.registry.verbs.objects import Registry
from app.store import open_store
from tests.api.conftest import serving
from tests.conftest import NO_TLS, Clock, database, execute
from tests.kinds.jobs import UID, written
from tests.kinds.tables import Row, Table, cause, invalid, row
from tests.kinds.tables import cronjobs as cron
from tests.kinds.tables.jobs import FAILURE_POLICIES, JOBS, SELECTORS, SUCCESS_POLICIES
from tests.kinds.tables.statuses import STATUSES
from tests.kinds.tables.updates import UPDATES
from tests.registry.examples import JOBS as JOB_KIND
from tests.registry.examples import NAMESPACES, create, example, named

pytestmark = pytest.mark.asyncio(loop_scope="module")
ANY_UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
TEMPLATE = re.compile(r"\{.*\}")
UNTAKEN = count()


class Place:
    """A namespace, and the API as somebody who may do everything."""

    def __init__(self, registry: Registry, client: httpx.AsyncClient, namespace: str) -> None:
        self.registry = registry
        self.client = client
        self.namespace = namespace

    def path(self, kind: Kind, *parts: str) -> str:
        return "/".join((f"/apis/batch/v1/namespaces/{self.namespace}/{kind.plural}", *parts))

    async def post(self, kind: Kind, document: dict[str, Any]) -> httpx.Response:
        return await self.client.post(self.path(kind), json=document)

    async def made(self, kind: Kind, document: dict[str, Any]) -> dict[str, Any]:
        answer = await self.post(kind, document)
        assert answer.status_code == 201, answer.text
        found: dict[str, Any] = (await self.client.get(self.path(kind, document["metadata"]["name"]))).json()
        return found

    async def put(self, kind: Kind, document: dict[str, Any], *parts: str) -> httpx.Response:
        """Unconditionally."""
        metadata = {key: value for key, value in document["metadata"].items() if key != "resourceVersion"}
        path = self.path(kind, metadata["name"], *parts)
        return await self.client.put(path, json=document | {"metadata": metadata})

    async def rewrite(self, kind: Kind, document: dict[str, Any], **fields: Any) -> None:
        """What no client may write."""
        await objects.rewrite(
            self.registry, kind, self.namespace, document["metadata"]["name"], lambda old: replace(old, **fields)
        )


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def api(server: str, template: str) -> AsyncIterator[tuple[Registry, httpx.AsyncClient]]:
    name = f"validation_{token_hex(4)}"
    await execute(server, f"create database {name} template {template}")
    async with open_store(database(server, name)) as store:
        registry = Registry(store, Clock())
        await bootstrap(registry)
        headers = {"Authorization": f"Bearer {await issue(registry, User(name='admin', groups=(MASTERS,)))}"}
        async with (
            serving(registry) as url,
            httpx.AsyncClient(base_url=url, headers=headers, timeout=30, verify=NO_TLS) as client,
        ):
            yield registry, client
    await execute(server, f"drop database {name} with (force)")


@pytest_asyncio.fixture(loop_scope="module")
async def place(api: tuple[Registry, httpx.AsyncClient]) -> Place:
    registry, client = api
    namespace = f"row-{next(UNTAKEN)}"
    await create(registry, NAMESPACES, named(example(NAMESPACES), name=namespace))
    return Place(registry, client, namespace)


def job(**parts: Any) -> dict[str, Any]:
    """As a client sends it: the server gives the UID, and the namespace is in the URL."""
    document: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(written(**parts)))
    del document["metadata"]["uid"], document["metadata"]["namespace"]
    return document | {"apiVersion": "batch/v1", "kind": "Job"}


def check(answer: httpx.Response, refused: Row, about: str) -> None:
    """All that a Status says. Where the table has `{...}`, a whole template is shown."""
    whole = [each.field for each in refused.causes] == ["spec.template"]
    text = ANY_UID.sub(UID, answer.text)
    found = msgspec.json.decode(text)
    causes = found["details"]["causes"]
    if whole:
        found["message"], causes[0]["message"] = (
            TEMPLATE.sub("{...}", each) for each in (found["message"], causes[0]["message"])
        )
    kind, name = about.split(" ")
    texts = list(dict.fromkeys(f"{each.field}: {each.message}" for each in refused.causes))
    why = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    assert (answer.status_code, found["code"], found["reason"]) == (422, 422, "Invalid")
    assert found["message"] == f'{kind}.batch "{name}" is invalid: {why}'
    assert causes == [each._asdict() for each in refused.causes]
    assert (found["details"]["kind"], found["details"]["group"], found["details"]["name"]) == (kind, "batch", name)


def rows(*tables: Table) -> pytest.MarkDecorator:
    found = [pytest.param(refused, id=what) for table in tables for what, refused in table.items()]
    return pytest.mark.parametrize("refused", found)


# What is wrong with a name is not for the kind to say.
NAMES: Table = {
    "the name is none": row("metadata.name", invalid('"Pi"', dns_subdomain("Pi")[0]), metadata={"name": "Pi"}),
}


@rows(JOBS, NAMES, SELECTORS, FAILURE_POLICIES, SUCCESS_POLICIES)
async def test_no_job_is_created_when(place: Place, refused: Row) -> None:
    document = job(**refused.sent)

    check(await place.post(JOB_KIND, document), refused, f"Job {document['metadata']['name']}")


@rows(UPDATES)
async def test_no_job_is_updated_when(place: Place, refused: Row) -> None:
    old = await place.made(JOB_KIND, job(**refused.before))
    await place.rewrite(JOB_KIND, old, status=written(**refused.before).status)

    check(await place.put(JOB_KIND, _next(old, job(**refused.sent))), refused, "Job pi")


def _next(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """What a client sends that has read the Job: with its selector, unless that is made by hand, and its labels."""
    spec, template = new["spec"], new["spec"]["template"]
    labels = old["spec"]["template"]["metadata"]["labels"] | template["metadata"].get("labels", {})
    selector = spec.get("selector", old["spec"]["selector"])
    whole = spec | {"selector": selector, "template": template | {"metadata": {"labels": labels}}}
    return old | {"spec": whole}


@rows(STATUSES)
async def test_no_status_of_a_job_is_written_when(place: Place, refused: Row) -> None:
    old = await place.made(JOB_KIND, job(spec=refused.before["spec"]))
    await place.rewrite(JOB_KIND, old, status=written(**refused.before).status)
    sent = old | {"status": refused.sent["status"]}

    check(await place.put(JOB_KIND, sent, "status"), refused, "Job pi")


@rows(cron.CRON_JOBS)
async def test_no_cron_job_is_created_when(place: Place, refused: Row) -> None:
    document = cron.manifest(**refused.sent)

    check(await place.post(CRON_JOBS, document), refused, f"CronJob {document['metadata']['name']}")


@rows(cron.CRON_JOB_UPDATES)
async def test_no_cron_job_is_updated_when(place: Place, refused: Row) -> None:
    old = await place.made(CRON_JOBS, cron.manifest())
    before = CRON_JOBS.prepare(cron.written(**refused.before)).spec
    await place.rewrite(CRON_JOBS, old, spec=before)

    check(await place.put(CRON_JOBS, cron.manifest(**refused.sent)), refused, "CronJob nightly")


async def test_what_a_cron_job_is_called_and_where_may_not_change_and_all_else_may(place: Place) -> None:
    old = await place.made(CRON_JOBS, cron.manifest())
    everything = {
        "schedule": "@every 1h",
        "timeZone": "Etc/UTC",
        "startingDeadlineSeconds": 0,
        "concurrencyPolicy": "Replace",
        "suspend": True,
        "successfulJobsHistoryLimit": 0,
        "failedJobsHistoryLimit": 0,
    }

    assert (await place.put(CRON_JOBS, cron.manifest(everything, {"parallelism": 2}))).status_code == 200
    renamed = old | {"metadata": old["metadata"] | {"name": "daily"}}
    answer = await place.client.put(place.path(CRON_JOBS, "nightly"), json=renamed)
    assert (answer.status_code, answer.json()["message"]) == (
        400,
        "the name of the object (daily) does not match the name on the URL (nightly)",
    )


async def test_any_status_of_a_cron_job_will_do_and_its_spec_stays(place: Place) -> None:
    old = await place.made(CRON_JOBS, cron.manifest())
    metadata = old["metadata"] | {"annotations": {"seen": "yes"}}
    status = {"lastScheduleTime": "2001-01-01T00:00:00Z", "active": [{"name": "nobody"}]}
    sent = old | {"spec": old["spec"] | {"schedule": "a b c"}, "status": status, "metadata": metadata}

    found = (await place.put(CRON_JOBS, sent, "status")).json()

    assert (found["status"], found["spec"]) == (status, old["spec"])
    assert found["metadata"]["annotations"] == {"seen": "yes"}


# --- metadata


@pytest.mark.parametrize(
    ("field", "value"),
    [("creationTimestamp", "2001-01-01T00:00:00Z"), ("deletionTimestamp", "2001-01-01T00:00:00Z")],
)
@pytest.mark.parametrize("verb", ["put", "patch"])
async def test_nobody_changes_when_a_job_was(place: Place, field: str, value: str, verb: str) -> None:
    """Kubernetes fills in what it has itself set at deletion; what was set at creation is compared."""
    old = await place.made(JOB_KIND, job())
    changed = {field: value}
    if verb == "put":
        answer = await place.put(JOB_KIND, old | {"metadata": old["metadata"] | changed})
    else:
        headers = {"Content-Type": "application/merge-patch+json"}
        answer = await place.client.patch(place.path(JOB_KIND, "pi"), json={"metadata": changed}, headers=headers)

    if field == "deletionTimestamp":
        assert (answer.status_code, answer.json()["metadata"].get(field)) == (200, None)
    else:
        expected = cause(f"metadata.{field}", invalid(f'"{value}"', "field is immutable"))
        check(answer, Row((expected,), {}, {}), "Job pi")


@pytest.mark.parametrize("media", ["application/merge-patch+json", "application/strategic-merge-patch+json"])
async def test_no_patch_changes_the_uid_of_a_job(place: Place, media: str) -> None:
    """The labels that were made of it then fail, too."""
    await place.made(JOB_KIND, job())
    changed = {"metadata": {"uid": "another"}}
    answer = await place.client.patch(place.path(JOB_KIND, "pi"), json=changed, headers={"Content-Type": media})

    causes = answer.json()["details"]["causes"]
    assert (answer.status_code, answer.json()["reason"]) == (422, "Invalid")
    assert causes[0] == {
        "reason": "FieldValueInvalid",
        "message": 'Invalid value: "another": field is immutable',
        "field": "metadata.uid",
    }


# Uncertain in the reference, which has 422 for this. A PUT that names another UID is taken to be meant for another object:
# Kubernetes makes a precondition of it.
async def test_a_job_that_is_put_under_another_uid_is_a_conflict(place: Place) -> None:
    old = await place.made(JOB_KIND, job())
    answer = await place.put(JOB_KIND, old | {"metadata": old["metadata"] | {"uid": "another"}})

    assert (answer.status_code, answer.json()["reason"]) == (409, "Conflict")
    assert answer.json()["message"] == (
        'Operation cannot be fulfilled on jobs.batch "pi": Precondition failed: '
        f"UID in precondition: another, UID in object meta: {old['metadata']['uid']}"
    )


async def test_a_job_on_its_way_out_gets_no_finalizers(place: Place) -> None:
    old = await place.made(JOB_KIND, job(metadata={"finalizers": ["acme.io/first"]}))
    await place.client.delete(place.path(JOB_KIND, "pi"), params={"propagationPolicy": "Background"})
    sent = old | {"metadata": old["metadata"] | {"finalizers": ["acme.io/first", "acme.io/second"]}}

    text = "no new finalizers can be added if the object is being deleted, found new finalizers"
    expected = cause("metadata.finalizers", f'Forbidden: {text} []string{{"acme.io/second"}}')
    check(await place.put(JOB_KIND, sent), Row((expected,), {}, {}), "Job pi")


async def test_an_update_leaves_the_status_and_counts_what_it_changes(place: Place) -> None:
    old = await place.made(JOB_KIND, job())
    changed = old | {"spec": old["spec"] | {"suspend": True}, "status": {"active": 7}}

    found = (await place.put(JOB_KIND, changed)).json()

    assert found["status"] == old["status"]
    assert (old["metadata"]["generation"], found["metadata"]["generation"]) == (1, 2)


# --- warnings

NO_LABEL = (
    "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; "
    "a DNS label is recommended: [must not contain dots]"
)
LONG_LIST = (
    "spec: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, "
    "Kubernetes might not be able to track completedIndexes when a big number of indexes fail"
)
ORPHANS = (
    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them "
    "or set propagationPolicy=Orphan to suppress this warning"
)
ZONE = (
    "CRON_TZ or TZ used in spec.schedule is not officially supported, see "
    "https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details"
)
HUGE = {"completionMode": "Indexed", "completions": 100_001, "parallelism": 10_001}


def warned(*texts: str) -> str | None:
    return ", ".join(f'299 - "{text}"' for text in texts) or None


@pytest.mark.parametrize(
    ("name", "spec", "texts"),
    [
        pytest.param("pi", {}, (), id="nothing"),
        pytest.param("p.i", {}, (NO_LABEL,), id="a name that makes no host name"),
        pytest.param("pi", HUGE, (LONG_LIST,), id="more indexes than can be tracked"),
        pytest.param("pi", {**HUGE, "parallelism": 10_000}, (), id="nothing if few run at once"),
    ],
)
async def test_the_answer_warns_of(place: Place, name: str, spec: dict[str, Any], texts: tuple[str, ...]) -> None:
    answer = await place.post(JOB_KIND, job(spec=spec, metadata={"name": name}))

    assert (answer.status_code, answer.headers.get("Warning")) == (201, warned(*texts))


async def test_every_change_of_a_huge_spec_is_warned_of(place: Place) -> None:
    old = await place.made(JOB_KIND, job(spec=HUGE))

    same = await place.put(JOB_KIND, old)
    changed = await place.put(JOB_KIND, old | {"spec": old["spec"] | {"suspend": True}})

    assert (same.headers.get("Warning"), changed.headers.get("Warning")) == (None, warned(LONG_LIST))


@pytest.mark.parametrize(
    ("policy", "texts"), [({}, (ORPHANS,)), *(({"propagationPolicy": each}, ()) for each in ("Background", "Orphan"))]
)
async def test_a_delete_warns_of_pods_that_stay(place: Place, policy: dict[str, str], texts: tuple[str, ...]) -> None:
    await place.made(JOB_KIND, job())

    answer = await place.client.delete(place.path(JOB_KIND, "pi"), params=policy)

    assert (answer.status_code, answer.headers.get("Warning")) == (200, warned(*texts))


async def test_a_zone_that_stays_in_a_schedule_is_warned_of(place: Place) -> None:
    old = await place.made(CRON_JOBS, cron.manifest())
    zoned = {"schedule": "TZ=UTC 0 * * * *"}
    await place.rewrite(CRON_JOBS, old, spec=CRON_JOBS.prepare(cron.written(spec=zoned)).spec)

    answer = await place.put(CRON_JOBS, cron.manifest(zoned | {"suspend": True}))

    assert (answer.status_code, answer.headers.get("Warning")) == (200, warned(ZONE))

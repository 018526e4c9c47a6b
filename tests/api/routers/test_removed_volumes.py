"""What an agent may see and say of volumes: those of its own pods, and those whose data its node is to remove."""

import httpx
from msgspec.structs import replace

from app.api.auth.authenticator import NODES, User
from app.api.auth.tokens import issue
from app.kinds.pod.pod import KIND as PODS
from app.kinds.storage.persistentvolume import DATA, RECLAIM_NODE
from app.kinds.storage.persistentvolume import KIND as VOLUMES
from app.kinds.storage.persistentvolumeclaim import KIND as CLAIMS
from app.machinery.base import ObjectMeta, ObjectReference
from app.registry.verbs import objects
from app.registry.verbs.objects import Registry
from tests.conftest import NO_TLS
from tests.plans.volumes.storage import a_claim, a_volume, with_claims
from tests.registry.examples import a_pod, create, get

REPORT = "/apis/agents.jobplane.dev/v1/nodes/{}/removed-volumes"


async def agent(registry: Registry, url: str, node: str) -> httpx.AsyncClient:
    token = await issue(registry, User(name=f"system:node:{node}", groups=(NODES,), nodes=(node,)))
    return httpx.AsyncClient(base_url=url, headers={"Authorization": f"Bearer {token}"}, verify=NO_TLS)


async def stored_claim(registry: Registry, name: str) -> None:
    """A claim, and the volume that names it."""
    await create(registry, CLAIMS, replace(a_claim(name), metadata=ObjectMeta(name=name)))
    volume = a_volume(f"v-{name}", claim_ref=ObjectReference(namespace="default", name=name))
    await create(registry, VOLUMES, replace(volume, metadata=ObjectMeta(name=f"v-{name}")))


async def test_an_agent_reads_the_claims_and_volumes_of_its_own_pods(registry: Registry, url: str) -> None:
    for name in ("mine", "theirs"):
        await stored_claim(registry, name)
    pod = a_pod("p")
    await create(registry, PODS, replace(pod, spec=replace(pod.spec, volumes=with_claims(pod, "mine"), node_name="n")))

    async with await agent(registry, url, "n") as mine, await agent(registry, url, "m") as other:
        for path in ("/api/v1/namespaces/default/persistentvolumeclaims/{}", "/api/v1/persistentvolumes/v-{}"):
            assert (await mine.get(path.format("mine"))).status_code == 200
            assert (await mine.get(path.format("theirs"))).status_code == 403
            assert (await other.get(path.format("mine"))).status_code == 403
            assert (await mine.delete(path.format("mine"))).status_code == 403
        assert (await mine.get("/api/v1/persistentvolumes")).status_code == 403


async def test_an_agent_finds_and_reports_the_volumes_of_its_node_only(registry: Registry, url: str) -> None:
    made = a_volume("v")
    meta = ObjectMeta(name="v", annotations={RECLAIM_NODE: "n"}, finalizers=(DATA,))
    stored = await create(registry, VOLUMES, replace(made, metadata=meta))
    released = replace(stored, status=replace(stored.status, phase="Released"))
    await objects.update(registry, VOLUMES, "", "v", released, status=True)
    body = {"items": [{"name": "v", "uid": stored.metadata.uid}]}

    async with await agent(registry, url, "n") as chosen, await agent(registry, url, "m") as other:
        own = {"fieldSelector": f"{RECLAIM_NODE}=n"}
        assert [
            each["metadata"]["name"]
            for each in (await chosen.get("/api/v1/persistentvolumes", params=own)).json()["items"]
        ] == ["v"]
        assert (await other.get("/api/v1/persistentvolumes", params=own)).status_code == 403
        assert (await other.post(REPORT.format("m"), json=body)).json() == {"accepted": 0}
        assert (await other.post(REPORT.format("n"), json=body)).status_code == 403
        for wrong in ({"name": "v", "uid": "of-an-earlier-one"}, {"name": "gone", "uid": "x"}):
            assert (await chosen.post(REPORT.format("n"), json={"items": [wrong]})).json() == {"accepted": 0}
        assert (await get(registry, VOLUMES, "v", "")).metadata.finalizers == (DATA,)
        assert (await chosen.post(REPORT.format("n"), json=body)).json() == {"accepted": 1}

    assert (await get(registry, VOLUMES, "v", "")).metadata.finalizers == ()

"""Endpoints for the encryption of Secrets: who may call them, what they answer, what is said without a master key."""

from pathlib import Path

import httpx

from app.registry.bootstrap import bootstrap
from app.registry.verbs.objects import Registry
from app.store import open_store
from app.store.encryption.master_keys import KeyFile
from tests.api.conftest import administering, serving
from tests.api.people import bind, cluster_role, meeting, rule
from tests.conftest import Clock
from tests.store.encryption.test_master_keys import key_file, new_line

KEYS = "/apis/agents.jobplane.dev/v1/datakeys"
METHODS = ("GET", "POST", "DELETE")


async def test_each_method_needs_its_own_right(registry: Registry, url: str, admin: httpx.AsyncClient) -> None:
    async with meeting(registry, url) as people:
        ada = await people.user("ada")
        assert [(await ada.request(method, KEYS)).status_code for method in METHODS] == [403] * 3

        await cluster_role(admin, "reader", rule("list", "datakeys", "agents.jobplane.dev"))
        await bind(admin, "reader", ["User:ada"])
        assert [(await ada.request(method, KEYS)).status_code for method in METHODS] == [200, 403, 403]


async def test_without_a_master_key_nothing_is_rotated(admin: httpx.AsyncClient) -> None:
    refused = [await admin.request(method, KEYS) for method in ("POST", "DELETE")]

    assert [each.status_code for each in refused] == [409, 409]
    assert "set JOBPLANE_SECRETS_KEY_FILE" in refused[0].json()["message"]
    assert (await admin.get(KEYS)).json()["items"] == []


async def test_rotation_and_decryption_answer_with_the_keys_and_no_key_itself(dsn: str, tmp_path: Path) -> None:
    line = new_line()
    async with open_store(dsn, keys=KeyFile(key_file(tmp_path / "keys", line))) as store:
        registry = Registry(store, Clock())
        await bootstrap(registry)
        async with serving(registry) as url, administering(registry, url) as admin:
            body = {"metadata": {"name": "a"}, "stringData": {"password": "p"}}
            assert (await admin.post("/api/v1/namespaces/default/secrets", json=body)).status_code == 201
            rotated = await admin.post(KEYS)
            decrypted = await admin.delete(KEYS)
        (wrapped,) = {row["wrapped"] for row in await store.pool.fetch("select wrapped from data_keys limit 1")}

    first, second = rotated.json()["items"]
    assert (rotated.status_code, first["versions"], second["versions"]) == (201, 1, 0)
    assert first["masterKey"] == second["masterKey"]
    assert "masterKey" not in decrypted.json()["items"][-1]
    assert line not in decrypted.text
    assert wrapped.hex() not in decrypted.text

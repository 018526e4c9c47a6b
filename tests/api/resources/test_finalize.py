"""PUT namespaces/NAME/finalize, as people use it to let go of a namespace that hangs."""

from typing import Any

import httpx

PATH = "/api/v1/namespaces"


async def a_namespace(admin: httpx.AsyncClient, *finalizers: str) -> dict[str, Any]:
    manifest = {"metadata": {"name": "research"}, "spec": {"finalizers": list(finalizers)}}
    answer = await admin.post(PATH, json=manifest)
    assert answer.status_code == 201, answer.text
    return answer.json()


async def finalize(admin: httpx.AsyncClient, namespace: dict[str, Any], *finalizers: str, **query: str) -> Any:
    body = namespace | {"spec": {"finalizers": list(finalizers)}}
    return await admin.put(f"{PATH}/research/finalize", json=body, params=query)


async def test_the_finalizers_are_stored_as_sent(admin: httpx.AsyncClient) -> None:
    namespace = await a_namespace(admin, "example.com/hold")
    assert namespace["spec"]["finalizers"] == ["example.com/hold", "kubernetes"]

    answer = await finalize(admin, namespace | {"status": {"phase": "Terminating"}}, "kubernetes")

    assert answer.status_code == 200
    assert answer.json()["spec"]["finalizers"] == ["kubernetes"]
    assert answer.json()["status"]["phase"] == "Active"


async def test_a_plain_update_keeps_them(admin: httpx.AsyncClient) -> None:
    namespace = await a_namespace(admin)

    answer = await admin.put(f"{PATH}/research", json=namespace | {"spec": {}})

    assert answer.json()["spec"]["finalizers"] == ["kubernetes"]


async def test_without_the_last_one_a_namespace_that_is_deleted_goes(admin: httpx.AsyncClient) -> None:
    await a_namespace(admin)
    going = (await admin.delete(f"{PATH}/research")).json()
    assert going["status"]["phase"] == "Terminating"

    answer = await finalize(admin, going)

    assert (answer.status_code, answer.json()["kind"]) == (200, "Namespace")
    assert (await admin.get(f"{PATH}/research")).status_code == 404


async def test_one_that_lives_stays(admin: httpx.AsyncClient) -> None:
    await finalize(admin, await a_namespace(admin))

    assert (await admin.get(f"{PATH}/research")).status_code == 200


async def test_a_dry_run_changes_nothing(admin: httpx.AsyncClient) -> None:
    namespace = await a_namespace(admin)

    assert (await finalize(admin, namespace, dryRun="All")).json()["spec"] == {}

    assert (await admin.get(f"{PATH}/research")).json()["spec"]["finalizers"] == ["kubernetes"]


async def test_refused_is_what_is_wrong_or_too_old(admin: httpx.AsyncClient) -> None:
    namespace = await a_namespace(admin)

    assert (await finalize(admin, namespace, "no good")).status_code == 422
    assert (await finalize(admin, namespace, "kubernetes", "example.com/x")).status_code == 200
    assert (await finalize(admin, namespace)).status_code == 409


async def test_namespaces_are_not_deleted_all_at_once(admin: httpx.AsyncClient) -> None:
    answer = await admin.delete(PATH)

    assert (answer.status_code, answer.json()["reason"]) == (405, "MethodNotAllowed")
    resources = (await admin.get("/api/v1")).json()["resources"]
    verbs = {each["name"]: each["verbs"] for each in resources}
    assert "deletecollection" not in verbs["namespaces"]
    assert verbs["namespaces/finalize"] == ["update"]
    assert all("deletecollection" in verbs[name] for name in ("pods", "nodes", "configmaps"))


async def test_the_first_namespaces_stay(admin: httpx.AsyncClient) -> None:
    answer = await admin.delete(f"{PATH}/default")

    assert answer.status_code == 403
    assert answer.json()["message"] == 'namespaces "default" is forbidden: this namespace may not be deleted'

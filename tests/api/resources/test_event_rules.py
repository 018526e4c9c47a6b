"""Events over HTTP: the rules are those of the version in the path, whatever they are stored as."""

from typing import Any

import httpx
import pytest

OLD, NEW = "/api/v1/namespaces/default/events", "/apis/events.k8s.io/v1/namespaces/default/events"
AT = "2025-01-02T03:04:05.000000Z"


def an_event(**changed: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "pi.1", "namespace": "default"},
        "eventTime": AT,
        "reportingController": "example.com/controller",
        "reportingInstance": "controller-1",
        "action": "Binding",
        "reason": "Scheduled",
        "note": "Assigned",
        "type": "Normal",
        "regarding": {"kind": "Pod", "namespace": "default", "name": "pi"},
    } | changed


async def post(admin: httpx.AsyncClient, path: str, body: dict[str, Any]) -> dict[str, Any]:
    answer = await admin.post(path, json=body)
    assert answer.status_code == 201, answer.text
    return answer.json()


async def test_the_newer_version_is_strict_about_new_ones(admin: httpx.AsyncClient) -> None:
    answer = await admin.post(NEW, json=an_event(type="Odd", eventTime=None))

    assert (answer.status_code, answer.json()["reason"]) == (422, "Invalid")
    assert {cause["field"] for cause in answer.json()["details"]["causes"]} == {"eventTime", "type"}


async def test_the_newer_version_lets_only_the_series_change(admin: httpx.AsyncClient) -> None:
    made = await post(admin, NEW, an_event())

    refused = await admin.put(f"{NEW}/pi.1", json=made | {"note": "other"})
    assert refused.status_code == 422
    assert refused.json()["message"].endswith('message: Invalid value: "other": field is immutable')
    series = {"count": 2, "lastObservedTime": AT}
    patch = await admin.patch(
        f"{NEW}/pi.1", json={"series": series}, headers={"Content-Type": "application/strategic-merge-patch+json"}
    )
    assert (patch.status_code, patch.json()["series"]) == (200, series)
    assert (await admin.get(f"{OLD}/pi.1")).json()["series"] == series


@pytest.mark.parametrize("path", [OLD, NEW], ids=["older", "newer"])
async def test_what_recorders_of_the_older_sort_do(admin: httpx.AsyncClient, path: str) -> None:
    body = {
        "metadata": {"name": "pi.1", "namespace": "default"},
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": "pi"},
        "reason": "Odd",
        "count": 1,
        "lastTimestamp": "2025-01-02T03:04:05Z",
    }
    await post(admin, OLD, body)

    patched = await admin.patch(
        f"{OLD}/pi.1",
        json={"count": 2, "message": "again", "lastTimestamp": "2025-01-02T03:05:05Z"},
        headers={"Content-Type": "application/strategic-merge-patch+json"},
    )

    assert (patched.status_code, patched.json()["count"]) == (200, 2)
    shown = (await admin.get(f"{path}/pi.1")).json()
    assert shown.get("count", shown.get("deprecatedCount")) == 2


@pytest.mark.parametrize("path", [OLD, NEW], ids=["older", "newer"])
@pytest.mark.parametrize(
    "field",
    ["involvedObject.name=pi", "regarding.name=pi", "reportingController=example.com/controller", "regarding.uid="],
)
async def test_either_version_is_selected_by_the_fields_of_both(
    admin: httpx.AsyncClient, path: str, field: str
) -> None:
    await post(admin, NEW, an_event())
    other = {"kind": "Pod", "namespace": "default", "name": "other", "uid": "u"}
    await post(admin, NEW, an_event(metadata={"name": "b"}, regarding=other, reportingController="example.com/other"))

    found = (await admin.get(path, params={"fieldSelector": field})).json()["items"]
    assert [each["metadata"]["name"] for each in found] == ["pi.1"]
    opposite = (await admin.get(path, params={"fieldSelector": field.replace("=", "!=")})).json()["items"]
    assert [each["metadata"]["name"] for each in opposite] == ["b"]

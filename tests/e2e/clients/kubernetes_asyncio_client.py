"""kubernetes_asyncio: as the official client, with await. Prints what it saw."""

import asyncio
import json

from kubernetes_asyncio import client, config, watch

NAMESPACE = "default"
NAME = "asyncio"


async def main() -> None:
    await config.load_kube_config()
    async with client.ApiClient() as api:
        batch, core = client.BatchV1Api(api), client.CoreV1Api(api)
        container = client.V1Container(name="main", image="busybox", command=["sh", "-c", "echo hello"])
        template = client.V1PodTemplateSpec(spec=client.V1PodSpec(containers=[container], restart_policy="Never"))
        job = client.V1Job(metadata=client.V1ObjectMeta(name=NAME), spec=client.V1JobSpec(template=template))
        made = await batch.create_namespaced_job(NAMESPACE, job)
        selected = {"field_selector": f"metadata.name={NAME}", "timeout_seconds": 60}
        since = made.metadata.resource_version
        types = await _watched(batch, selected | {"resource_version": since}, until_complete)
        (pod,) = (await core.list_namespaced_pod(NAMESPACE, label_selector=f"job-name={NAME}")).items
        patched = await batch.patch_namespaced_job(NAME, NAMESPACE, {"metadata": {"labels": {"patched": "yes"}}})
        listed = await batch.list_job_for_all_namespaces(label_selector="patched=yes")
        log = await core.read_namespaced_pod_log(pod.metadata.name, NAMESPACE)
        try:
            await batch.create_namespaced_job(NAMESPACE, job)
        except client.ApiException as error:
            twice = json.loads(error.body)["reason"]
        deleted = await batch.delete_namespaced_job(NAME, NAMESPACE, propagation_policy="Foreground")
        since = patched.metadata.resource_version
        await _watched(batch, selected | {"resource_version": since}, lambda event: event["type"] == "DELETED")
        left = (await batch.list_namespaced_job(NAMESPACE, field_selector=f"metadata.name={NAME}")).items
    seen = {
        "succeeded": left == [] and pod.status.phase == "Succeeded",
        "changes": types == {"MODIFIED"},
        "patched": patched.metadata.labels["patched"],
        "listed": [each.metadata.name for each in listed.items] == [NAME],
        "log": log,
        "twice": twice,
        "deleted": deleted.status is not None,
    }
    print(json.dumps(seen))


def until_complete(event) -> bool:
    conditions = event["object"].status.conditions or []
    return any(each.type == "Complete" and each.status == "True" for each in conditions)


async def _watched(batch, params, ends) -> set[str]:
    types = set()
    async with watch.Watch().stream(batch.list_namespaced_job, NAMESPACE, **params) as stream:
        async for event in stream:
            types.add(event["type"])
            if ends(event):
                break
    return types


asyncio.run(main())

"""The official Python client: run a Job to its end, watched; patch it; read its log; delete it. Prints what it saw."""

import json

from kubernetes import client, config, watch

config.load_kube_config()
NAMESPACE = "default"
NAME = "official"
batch, core = client.BatchV1Api(), client.CoreV1Api()

container = client.V1Container(name="main", image="busybox", command=["sh", "-c", "echo hello"])
template = client.V1PodTemplateSpec(spec=client.V1PodSpec(containers=[container], restart_policy="Never"))
job = client.V1Job(metadata=client.V1ObjectMeta(name=NAME), spec=client.V1JobSpec(template=template, backoff_limit=2))
made = batch.create_namespaced_job(NAMESPACE, job)

seen = []
stream = watch.Watch()
for event in stream.stream(
    batch.list_namespaced_job,
    NAMESPACE,
    field_selector=f"metadata.name={NAME}",
    resource_version=made.metadata.resource_version,
    timeout_seconds=60,
):
    conditions = [each.type for each in event["object"].status.conditions or [] if each.status == "True"]
    seen.append(event["type"])
    if "Complete" in conditions:
        stream.stop()

(pod,) = core.list_namespaced_pod(NAMESPACE, label_selector=f"job-name={NAME}").items
patched = batch.patch_namespaced_job(NAME, NAMESPACE, {"metadata": {"labels": {"patched": "yes"}}})
listed = [page.metadata.name for page in batch.list_job_for_all_namespaces(label_selector="patched=yes").items]
# Undecoded: release 36 of the client makes a text of the bytes by showing them as Python would.
log = core.read_namespaced_pod_log(pod.metadata.name, NAMESPACE, _preload_content=False).data.decode()
try:
    batch.create_namespaced_job(NAMESPACE, job)
except client.ApiException as error:
    twice = json.loads(error.body)["reason"]
deleted = batch.delete_namespaced_job(NAME, NAMESPACE, propagation_policy="Foreground")
gone = watch.Watch()
for event in gone.stream(
    batch.list_namespaced_job,
    NAMESPACE,
    field_selector=f"metadata.name={NAME}",
    resource_version=patched.metadata.resource_version,
    timeout_seconds=60,
):
    if event["type"] == "DELETED":
        gone.stop()

gated = client.V1PodSpec(containers=[container], scheduling_gates=[client.V1PodSchedulingGate(name="example.com/held")])
core.create_namespaced_pod(NAMESPACE, client.V1Pod(metadata=client.V1ObjectMeta(name=NAME), spec=gated))
removed = core.delete_namespaced_pod(NAME, NAMESPACE, grace_period_seconds=0)

left = batch.list_namespaced_job(NAMESPACE, field_selector=f"metadata.name={NAME}").items
print(
    json.dumps(
        {
            "succeeded": left == [] and pod.status.phase == "Succeeded",
            "changes": set(seen) == {"MODIFIED"},
            "patched": patched.metadata.labels["patched"],
            "listed": listed == [NAME],
            "log": log,
            "twice": twice,
            "deleted": deleted is not None and removed.status.phase == "Pending",
        }
    )
)

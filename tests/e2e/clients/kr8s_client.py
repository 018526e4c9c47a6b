"""kr8s, which reads discovery and has no generated models. Prints what it saw."""

import json

import kr8s
from kr8s.objects import Job

NAME = "kr8s"
api = kr8s.api()
container = {"name": "main", "image": "busybox", "command": ["sh", "-c", "echo hello"]}
manifest = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": NAME, "namespace": "default"},
    "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
}
job = Job(manifest, api=api)
job.create()
types = set()
for type_, seen in api.watch("jobs", namespace="default", field_selector=f"metadata.name={NAME}"):
    types.add(type_)
    if any(each["type"] == "Complete" for each in seen.status.get("conditions", [])):
        break
job.wait("condition=Complete", timeout=60)
(pod,) = api.get("pods", namespace="default", label_selector=f"job-name={NAME}")
job.patch({"metadata": {"labels": {"patched": "yes"}}})
listed = [each.name for each in api.get("jobs", namespace=kr8s.ALL, label_selector="patched=yes")]
log = "\n".join(pod.logs()) + "\n"
try:
    Job(manifest, api=api).create()
except kr8s.ServerError as error:
    twice = error.response.json()["reason"]
job.delete(propagation_policy="Foreground")
job.wait("delete", timeout=60)
print(
    json.dumps(
        {
            "succeeded": not job.exists() and pod.status["phase"] == "Succeeded",
            "changes": types <= {"ADDED", "MODIFIED"},
            "patched": job.labels["patched"],
            "listed": listed == [NAME],
            "log": log,
            "twice": twice,
            "deleted": True,
        }
    )
)

"""lightkube, which applies on the server's side by preference. Prints what it saw."""

import json

from lightkube import ApiError, Client
from lightkube.models.batch_v1 import JobSpec
from lightkube.models.core_v1 import Container, PodSpec, PodTemplateSpec
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.batch_v1 import Job
from lightkube.resources.core_v1 import Pod
from lightkube.types import CascadeType

NAME = "lightkube"
client = Client(namespace="default", field_manager="suite")
container = Container(name="main", image="busybox", command=["sh", "-c", "echo hello"])
job = Job(
    metadata=ObjectMeta(name=NAME),
    spec=JobSpec(template=PodTemplateSpec(spec=PodSpec(containers=[container], restartPolicy="Never"))),
)
made = client.create(job)
types = set()
for type_, seen in client.watch(Job, fields={"metadata.name": NAME}, resource_version=made.metadata.resourceVersion):
    types.add(type_)
    if any(each.type == "Complete" for each in seen.status.conditions or []):
        break
(pod,) = client.list(Pod, labels={"job-name": NAME})
client.patch(Job, NAME, {"metadata": {"labels": {"patched": "yes"}}})
applied = Job(metadata=ObjectMeta(name=NAME, annotations={"applied": "yes"}))
after = client.apply(applied)
listed = [each.metadata.name for each in client.list(Job, namespace="*", labels={"patched": "yes"})]
log = "".join(client.log(pod.metadata.name))
try:
    client.create(job)
except ApiError as error:
    twice = error.status.reason
client.delete(Job, NAME, cascade=CascadeType.FOREGROUND)
for type_, _ in client.watch(Job, fields={"metadata.name": NAME}, resource_version=after.metadata.resourceVersion):
    if type_ == "DELETED":
        break
print(
    json.dumps(
        {
            "succeeded": list(client.list(Job, fields={"metadata.name": NAME})) == []
            and pod.status.phase == "Succeeded",
            "changes": types == {"MODIFIED"},
            "patched": after.metadata.labels["patched"],
            "listed": listed == [NAME] and after.metadata.annotations["applied"] == "yes",
            "log": log,
            "twice": twice,
            "deleted": True,
        }
    )
)

"""An operator in kopf, as a user may write one: a Sweep becomes a Job for each of its values, and counts those that are done.

It runs in an environment of its own, by `kopf run`. Where its webhook has its certificate comes from the environment.
"""

import os

import kopf
import kubernetes

GROUP = "lab.example.com"


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_: object) -> None:
    kubernetes.config.load_kube_config()
    settings.admission.server = kopf.WebhookServer(
        addr="127.0.0.1",
        port=int(os.environ["WEBHOOK_PORT"]),
        host="127.0.0.1",
        certfile=os.environ["WEBHOOK_CERTIFICATE"],
        pkeyfile=os.environ["WEBHOOK_CERTIFICATE"],
        cafile=os.environ["WEBHOOK_AUTHORITY"],
    )
    settings.admission.managed = f"sweeps.{GROUP}"  # it writes the webhook configurations itself
    settings.persistence.finalizer = f"sweeps.{GROUP}/finalizer"


@kopf.on.mutate(f"sweeps.{GROUP}", id="labelled")
def label(patch: kopf.Patch, **_: object) -> None:
    patch.metadata.labels["swept"] = "yes"


@kopf.on.validate(f"sweeps.{GROUP}", id="bounded")
def check(spec: kopf.Spec, **_: object) -> None:
    if len(spec["values"]) > 3:
        raise kopf.AdmissionError("too many values", code=422)


@kopf.on.create(f"sweeps.{GROUP}")
def begin(name: str, namespace: str, spec: kopf.Spec, patch: kopf.Patch, **_: object) -> dict[str, int]:
    for value in spec["values"]:
        container = {"name": "main", "image": "busybox", "command": ["sh", "-c", f"echo {value}"]}
        job = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": f"{name}-{value}", "labels": {"sweep": name}},
            "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
        }
        kopf.adopt(job)
        kubernetes.client.BatchV1Api().create_namespaced_job(namespace, job)
    patch.status["total"] = len(spec["values"])
    return {"started": len(spec["values"])}


@kopf.on.event("batch/v1", "jobs", labels={"sweep": kopf.PRESENT})
def count(namespace: str, labels: kopf.Labels, **_: object) -> None:
    name = labels["sweep"]
    jobs = kubernetes.client.BatchV1Api().list_namespaced_job(namespace, label_selector=f"sweep={name}").items
    done = sum(job.status.succeeded or 0 for job in jobs)
    custom = kubernetes.client.CustomObjectsApi()
    try:
        custom.patch_namespaced_custom_object_status(GROUP, "v1", namespace, "sweeps", name, {"status": {"done": done}})
    except kubernetes.client.ApiException as error:
        if error.status != 404:  # the Sweep is gone, and its Jobs follow it
            raise


@kopf.timer(f"sweeps.{GROUP}", interval=1.0)
def tick(patch: kopf.Patch, status: kopf.Status, **_: object) -> None:
    patch.status["ticks"] = status.get("ticks", 0) + 1


@kopf.on.delete(f"sweeps.{GROUP}")
def end(body: kopf.Body, **_: object) -> None:
    kopf.info(body, reason="Swept", message="The Sweep is over.")

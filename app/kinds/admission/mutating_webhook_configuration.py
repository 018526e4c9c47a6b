"""The MutatingWebhookConfiguration kind: webhooks that may change what is written."""

from datetime import datetime
from typing import Any

from msgspec.structs import replace

from app.kinds.admission.validating_admission_policy import GROUP
from app.kinds.admission.webhook_defaults import default_webhook, validate_webhooks
from app.kinds.admission.webhook_schema import MutatingWebhook, MutatingWebhookConfiguration
from app.machinery.base import Column, Kind
from app.machinery.durations import age
from app.machinery.errors import Cause

__all__ = ["KIND", "MutatingWebhookConfiguration"]


def prepare(configuration: MutatingWebhookConfiguration) -> MutatingWebhookConfiguration:
    return replace(configuration, webhooks=tuple(map(_prepare_webhook, configuration.webhooks)))


def _prepare_webhook(webhook: MutatingWebhook) -> MutatingWebhook:
    return replace(default_webhook(webhook), reinvocation_policy=webhook.reinvocation_policy or "Never")


def on_create(configuration: MutatingWebhookConfiguration, _: datetime) -> MutatingWebhookConfiguration:
    return replace(configuration, metadata=replace(configuration.metadata, generation=1))


def on_update(new: MutatingWebhookConfiguration, old: MutatingWebhookConfiguration) -> MutatingWebhookConfiguration:
    generation = old.metadata.generation + (new.webhooks != old.webhooks)
    return replace(new, metadata=replace(new.metadata, generation=generation))


def validate(configuration: MutatingWebhookConfiguration) -> list[Cause]:
    return list(validate_webhooks(configuration.webhooks))


def row(configuration: MutatingWebhookConfiguration, now: datetime) -> list[Any]:
    meta = configuration.metadata
    return [meta.name, len(configuration.webhooks), age(meta.creation_timestamp, now)]


KIND = Kind(
    type=MutatingWebhookConfiguration,
    group=GROUP,
    version="v1",
    plural="mutatingwebhookconfigurations",
    categories=("api-extensions",),
    namespaced=False,
    prepare=prepare,
    on_create=on_create,
    on_update=on_update,
    validate=validate,
    columns=(
        Column(name="Name", format="name", description="Name of the configuration."),
        Column(name="Webhooks", type="integer", description="Number of webhooks."),
        Column(name="Age", description="Time since the configuration was created."),
    ),
    row=row,
    example="""\
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata:
  name: lab
  labels:
    team: operations
webhooks:
- name: jobs.lab.example.com
  clientConfig:
    service:
      namespace: default
      name: reviewer
      path: /mutate-jobs
  rules:
  - apiGroups: ["batch"]
    apiVersions: ["v1"]
    operations: ["CREATE"]
    resources: ["jobs"]
  admissionReviewVersions: ["v1"]
  sideEffects: None
  namespaceSelector:
    matchLabels:
      reviewed: "true"
""",
)

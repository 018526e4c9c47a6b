"""The ValidatingWebhookConfiguration kind: webhooks that may refuse what is written."""

from datetime import datetime
from typing import Any

from msgspec.structs import replace

from app.kinds.admission.validating_admission_policy import GROUP
from app.kinds.admission.webhook_defaults import default_webhook, validate_webhooks
from app.kinds.admission.webhook_schema import ValidatingWebhookConfiguration
from app.machinery.base import Column, Kind
from app.machinery.durations import age
from app.machinery.errors import Cause

__all__ = ["KIND", "ValidatingWebhookConfiguration"]


def prepare(configuration: ValidatingWebhookConfiguration) -> ValidatingWebhookConfiguration:
    return replace(configuration, webhooks=tuple(map(default_webhook, configuration.webhooks)))


def on_create(configuration: ValidatingWebhookConfiguration, _: datetime) -> ValidatingWebhookConfiguration:
    return replace(configuration, metadata=replace(configuration.metadata, generation=1))


def on_update(
    new: ValidatingWebhookConfiguration, old: ValidatingWebhookConfiguration
) -> ValidatingWebhookConfiguration:
    generation = old.metadata.generation + (new.webhooks != old.webhooks)
    return replace(new, metadata=replace(new.metadata, generation=generation))


def validate(configuration: ValidatingWebhookConfiguration) -> list[Cause]:
    return list(validate_webhooks(configuration.webhooks))


def row(configuration: ValidatingWebhookConfiguration, now: datetime) -> list[Any]:
    meta = configuration.metadata
    return [meta.name, len(configuration.webhooks), age(meta.creation_timestamp, now)]


KIND = Kind(
    type=ValidatingWebhookConfiguration,
    group=GROUP,
    version="v1",
    plural="validatingwebhookconfigurations",
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
kind: ValidatingWebhookConfiguration
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
      path: /validate-jobs
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

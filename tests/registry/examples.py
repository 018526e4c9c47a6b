"""Objects for tests on a real registry: each kind's own example, and the verbs in their shortest form."""

from typing import Any

from msgspec.structs import replace

from app.kinds import KINDS, by_name
from app.kinds.apiextensions.custom_resource_definition import KIND as DEFINITIONS
from app.kinds.batch.job import KIND as JOBS
from app.kinds.batch.job import Job, JobSpec
from app.kinds.pod.container import Container
from app.kinds.pod.pod import KIND as PODS
from app.kinds.pod.pod import Pod, PodSpec
from app.machinery.base import Kind, Object, ObjectMeta
from app.machinery.decoding import decode
from app.registry import codec
from app.registry.verbs import objects
from app.registry.verbs.objects import Registry
from tests.build import a_template

NAMESPACES = by_name("", "Namespace")
# Kinds whose objects may have any name, and go when they are deleted. Definitions have tests of their own.
ORDINARY = [kind for kind in KINDS if kind is not DEFINITIONS]


def example(kind: Kind) -> Object:
    return decode.decode(kind.example.encode(), kind.type, content_type="yaml").object


def named(obj: Object, **metadata: Any) -> Object:
    return replace(obj, metadata=replace(obj.metadata, **metadata))


async def create(registry: Registry, kind: Kind, obj: Object) -> Any:
    """Into the namespace that it names, or default."""
    namespace = obj.metadata.namespace or "default"
    answer = await objects.create(registry, kind, namespace if kind.namespaced else "", obj)
    return read(kind, answer.body)


def read(kind: Kind, body: bytes) -> Any:
    return decode.decode(body, kind.type).object


async def get(registry: Registry, kind: Kind, name: str, namespace: str = "default") -> Any:
    """As it is stored, or None."""
    head = await registry.store.get(codec.key_of(kind, namespace, name))
    return codec.decode(kind, head) if head else None


def a_pod(name: str = "p", metadata: dict[str, Any] | None = None, **spec: Any) -> Pod:
    """A pod as a client sends it."""
    usual = {"containers": (Container(name="main", image="busybox"),), "restart_policy": "Never"}
    return Pod(metadata=ObjectMeta(name=name, **(metadata or {})), spec=PodSpec(**(usual | spec)))


def a_job(name: str = "pi", metadata: dict[str, Any] | None = None, **spec: Any) -> Job:
    """A Job as a client sends it."""
    usual = {"template": a_template(labels={"app": "pi"})}
    return Job(metadata=ObjectMeta(name=name, **(metadata or {})), spec=JobSpec(**(usual | spec)))


__all__ = ["JOBS", "NAMESPACES", "PODS", "a_job", "a_pod", "create", "example", "get", "named", "read"]

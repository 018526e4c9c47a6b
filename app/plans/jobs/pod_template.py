"""Pod template: the pods that a Job creates, with their names, owner, finalizer and completion index.

Used by `app.plans.jobs.scaling`. What all pods of a Job share is built once a plan (`common_pod`); one pod more then costs a
name and, for an Indexed Job, its index.
"""

from collections.abc import Mapping

from msgspec.structs import replace

from app.kinds.batch.job import Job, is_indexed
from app.kinds.pod.container import Container, EnvVar, EnvVarSource
from app.kinds.pod.pod import Pod, PodSpec
from app.kinds.pod.pod_annotations import MAIN_CONTAINER, START_TIMEOUT
from app.kinds.pod.volume import ObjectFieldSelector
from app.machinery.base import ObjectMeta, OwnerReference
from app.machinery.meta.owner_references import controller_reference
from app.plans.jobs.finalizers import add_tracking
from app.plans.jobs.indexes import COMPLETION_INDEX
from app.plans.plan import Names

LONGEST_PREFIX = 58  # five random characters more make a DNS label

_INDEX_VARIABLE = EnvVar(
    name="JOB_COMPLETION_INDEX",
    value_from=EnvVarSource(
        field_ref=ObjectFieldSelector(api_version="v1", field_path=f"metadata.labels['{COMPLETION_INDEX}']")
    ),
)


def common_pod(job: Job) -> Pod:
    """Return what all pods of the Job share: everything but names and indexes."""
    template = job.spec.template
    meta = template.metadata
    return Pod(
        api_version="v1",
        kind="Pod",
        metadata=ObjectMeta(
            namespace=job.metadata.namespace,
            labels=meta.labels,
            annotations={**meta.annotations, **_annotations_for_nodes(job)},
            finalizers=add_tracking(meta.finalizers),
            owner_references=(owner_reference(job),),
        ),
        spec=_with_index_variables(template.spec) if is_indexed(job) else template.spec,
    )


def _annotations_for_nodes(job: Job) -> dict[str, str]:
    """Annotations of the Job that its pods' nodes act on."""
    annotations = job.metadata.annotations
    return {key: annotations[key] for key in (MAIN_CONTAINER, START_TIMEOUT) if key in annotations}


def pod_of(job: Job, common: Pod, names: Names) -> Pod:
    """One more pod of a Job without indexes."""
    prefix = f"{job.metadata.name}-"
    name = names(prefix[:LONGEST_PREFIX])
    return replace(common, metadata=replace(common.metadata, name=name, generate_name=prefix))


def pod_of_index(job: Job, common: Pod, index: int, names: Names, annotations: Mapping[str, str]) -> Pod:
    """The pod for one index, with these annotations besides those of the template."""
    prefix = index_prefix(job.metadata.name, index)
    mark = {COMPLETION_INDEX: str(index)}
    meta = replace(
        common.metadata,
        name=names(prefix),
        generate_name=prefix,
        labels={**common.metadata.labels, **mark},
        annotations={**common.metadata.annotations, **mark, **annotations},
    )
    return replace(common, metadata=meta, spec=replace(common.spec, hostname=f"{job.metadata.name}-{index}"))


def index_prefix(name: str, index: int) -> str:
    """`<job>-<index>-`; if that is too long, the Job's name is truncated."""
    return f"{name[: LONGEST_PREFIX - len(f'-{index}-')]}-{index}-"


def owner_reference(job: Job) -> OwnerReference:
    return controller_reference("batch/v1", "Job", job.metadata)


def _with_index_variables(spec: PodSpec) -> PodSpec:
    return replace(
        spec,
        containers=tuple(map(_with_index_variable, spec.containers)),
        init_containers=tuple(map(_with_index_variable, spec.init_containers)),
    )


def _with_index_variable(container: Container) -> Container:
    if any(variable.name == _INDEX_VARIABLE.name for variable in container.env):
        return container
    return replace(container, env=(*container.env, _INDEX_VARIABLE))

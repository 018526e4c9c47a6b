"""Rerun: a new Job from one that was there before, as it was or with changes. Called by `app.api.routers.history`.

What the server or a controller wrote is left out, and so is what spoke to the old Job's surroundings: its owner, its dependencies
(they are fulfilled, or gone) and the heartbeat of its submitter. A patch can set any of it again.
"""

import re
from typing import Any

import msgspec
from msgspec.structs import replace

from app.kinds.batch.job import Job, JobSpec, JobStatus, own_labels, own_selector
from app.kinds.batch.job_annotations import AFTER, HEARTBEAT, HEARTBEAT_TIMEOUT
from app.machinery.base import LabelSelector, ObjectMeta
from app.machinery.decoding.decode import Decoded, convert
from app.machinery.patch.strategic_merge_patch import apply_strategic_merge_patch
from app.plans.jobs import backoff, dependencies, index_failure, oom_memory
from app.plans.jobs.job_record import RERUN_OF

_API_VERSION = "batch/v1"
_GENERATED = re.compile(r"-rerun-[a-z0-9]{5}$")
_MOST_CHARACTERS = 51  # of the old name: with what is added, it is still a label
_DROPPED = frozenset({
    AFTER,
    HEARTBEAT,
    HEARTBEAT_TIMEOUT,
    backoff.ANNOTATION,
    dependencies.SEEN,
    index_failure.WAITING,
    oom_memory.ANNOTATION,
    "kubectl.kubernetes.io/last-applied-configuration",
    "batch.kubernetes.io/cronjob-scheduled-timestamp",
})  # fmt: skip


def rerun(old: Job, name: str = "", patch: Any = None) -> Decoded[Job]:
    """Return the Job that repeats `old`, as a client would send it, and warnings. 400 or 422 for a patch that does not fit.

    Without a name, the server makes one: the old name, `-rerun-` and five characters.
    """
    meta, spec = old.metadata, old.spec
    new = Job(metadata=_new_meta(old, name), spec=spec if spec.manual_selector else _without_own_selector(meta, spec))
    document = {"apiVersion": _API_VERSION, "kind": "Job", **msgspec.json.decode(msgspec.json.encode(new))}
    patched = document if patch is None else apply_strategic_merge_patch(document, patch, Job)
    made = convert(patched, Job, api_version=_API_VERSION)
    return made._replace(object=_mark(made.object, meta.uid))


def _new_meta(old: Job, name: str) -> ObjectMeta:
    meta, own = old.metadata, own_labels(old.metadata)
    base = _GENERATED.sub("", meta.name)[:_MOST_CHARACTERS].rstrip("-.")
    return ObjectMeta(
        name=name,
        generate_name="" if name else f"{base}-rerun-",
        namespace=meta.namespace,
        labels=_without(meta.labels, own),
        annotations={key: value for key, value in meta.annotations.items() if key not in _DROPPED},
    )


def _without_own_selector(meta: ObjectMeta, spec: JobSpec) -> JobSpec:
    """The spec without the selector and the labels that the server made for the old Job."""
    selector = spec.selector or LabelSelector()
    selector = replace(selector, match_labels=_without(selector.match_labels, own_selector(meta)))
    template = spec.template
    labels = _without(template.metadata.labels, own_labels(meta))
    template = replace(template, metadata=replace(template.metadata, labels=labels))
    return replace(spec, selector=None if selector == LabelSelector() else selector, template=template)


def _without(labels: dict[str, str], own: dict[str, str]) -> dict[str, str]:
    return {key: value for key, value in labels.items() if own.get(key) != value}


def _mark(new: Job, uid: str) -> Job:
    """Whatever the patch says, the new Job names the one that it repeats, and has no status yet."""
    annotations = new.metadata.annotations | {RERUN_OF: uid}
    return replace(new, metadata=replace(new.metadata, annotations=annotations), status=JobStatus())

"""Validation of a Job on create and update. The Kind record in `app.kinds.batch.job` calls it.

Causes come in Kubernetes' order and words. What metadata must look like is the registry's business, for every kind.
"""

import re
from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from app.kinds.batch.job_annotations import validate_annotations, validate_annotations_update
from app.kinds.batch.job_policies import validate_failure_policy, validate_success_policy
from app.kinds.batch.job_scheduling import validate_scheduling, validate_scheduling_update
from app.kinds.batch.job_schema import Job, JobSpec
from app.kinds.batch.job_state import is_indexed, is_true
from app.kinds.pod.affinity import Affinity
from app.kinds.pod.container import Container
from app.kinds.pod.placement_validation import validate_selector
from app.kinds.pod.pod_schema import PodTemplateSpec
from app.kinds.pod.pod_validation import validate_template
from app.machinery.base import LabelSelector, ObjectMeta
from app.machinery.errors import Cause, invalid, not_supported, required, too_long
from app.machinery.meta.metadata_validation import IMMUTABLE, NEGATIVE
from app.machinery.name_validation import dns_label, dns_subdomain
from app.machinery.selectors import from_label_selector

_MAX_INDEXED = 100_000  # parallelism and failed indexes that one status can keep track of
_MANY_COMPLETIONS, _MAX_WITH_MANY = 100_000, 10_000
_MAX_MANAGED_BY_BYTES = 63
_PATH = r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+"
_PATH_RE = re.compile(_PATH)


def own_labels(metadata: ObjectMeta) -> dict[str, str]:
    """Return what the pods of this Job, and of no other, are labelled with, in today's words and in the first ones."""
    return {
        "batch.kubernetes.io/controller-uid": metadata.uid,
        "batch.kubernetes.io/job-name": metadata.name,
        "controller-uid": metadata.uid,
        "job-name": metadata.name,
    }


def own_selector(metadata: ObjectMeta) -> dict[str, str]:
    return {"batch.kubernetes.io/controller-uid": metadata.uid}


def validate(job: Job) -> list[Cause]:
    return [
        *_validate_generated_selector(job),
        *validate_spec(job.spec),
        *_selector(job.spec),
        *_pod_names(job),
        *validate_annotations(job.metadata, job.spec.template.spec),
    ]


def _validate_generated_selector(job: Job) -> Iterator[Cause]:
    """A selector that the server made must be this Job's own, not one copied from another."""
    if job.spec.manual_selector or job.spec.selector is None:
        return
    if not job.metadata.uid:
        yield required("metadata.uid")
    found, wanted = job.spec.template.metadata.labels, own_labels(job.metadata)
    if not wanted.items() <= found.items():
        yield from _find_foreign_labels(found, wanted)
    if not _accepts(job.spec.selector, wanted):
        yield invalid("spec.selector", job.spec.selector, "`selector` not auto-generated")


def _find_foreign_labels(found: dict[str, str], wanted: dict[str, str]) -> Iterator[Cause]:
    for key in sorted(wanted, key=lambda key: "/" in key):  # the first words before today's
        path, detail = f"spec.template.metadata.labels[{key}]", f"must be '{wanted[key]}'"
        if key not in found:
            yield required(path, detail)
        elif found[key] != wanted[key]:
            yield invalid(path, found, detail)


def _selector(spec: JobSpec) -> Iterator[Cause]:
    labels = spec.template.metadata.labels
    if spec.selector is None:
        yield required("spec.selector")
    yield from validate_selector(spec.selector, "spec.selector")
    if spec.selector is None or not _accepts(spec.selector, labels):
        yield invalid("spec.template.metadata.labels", labels, "`selector` does not match template `labels`")


def _accepts(selector: LabelSelector, labels: Mapping[str, str]) -> bool:
    """False if the selector rejects the labels. One that is invalid has its own causes, and is not asked."""
    if not selector.match_expressions and selector.match_labels.items() <= labels.items():
        return True
    return any(validate_selector(selector, "")) or from_label_selector(selector).matches(labels)


def _pod_names(job: Job) -> Iterator[Cause]:
    """The pods of an Indexed Job are host names too; the one with the highest index is the longest."""
    if is_indexed(job) and (job.spec.completions or 0) > 0:
        longest = f"{job.metadata.name}-{(job.spec.completions or 0) - 1}"
        if dns_label(longest):
            detail = f"will not able to create pod with invalid DNS label: {longest}"
            yield invalid("metadata.name", job.metadata.name, detail)


def validate_spec(spec: JobSpec, path: str = "spec") -> list[Cause]:
    """All of a spec but its selector, which a template of Jobs would not have."""
    return [
        *_counts(spec, path),
        *_managed_by(spec.managed_by, f"{path}.managedBy"),
        *_completion_mode(spec, path),
        *validate_failure_policy(spec, f"{path}.podFailurePolicy"),
        *validate_success_policy(spec, f"{path}.successPolicy"),
        *_replacement(spec, f"{path}.podReplacementPolicy"),
        *validate_template(spec.template, f"{path}.template"),
        *_restart_policy(spec, f"{path}.template.spec.restartPolicy"),
        *validate_scheduling(spec.scheduling, _parallelism(spec), f"{path}.scheduling"),
    ]


def _parallelism(spec: JobSpec) -> int:
    """A template of Jobs may not have its defaults yet."""
    return 1 if spec.parallelism is None else spec.parallelism


def _counts(spec: JobSpec, path: str) -> Iterator[Cause]:
    counts = {
        "parallelism": spec.parallelism,
        "completions": spec.completions,
        "activeDeadlineSeconds": spec.active_deadline_seconds,
        "backoffLimit": spec.backoff_limit,
        "ttlSecondsAfterFinished": spec.ttl_seconds_after_finished,
        "backoffLimitPerIndex": spec.backoff_limit_per_index,
        "maxFailedIndexes": spec.max_failed_indexes,
    }
    for name, count in counts.items():
        if count is not None and count < 0:
            yield invalid(f"{path}.{name}", count, NEGATIVE)
    if spec.max_failed_indexes is not None and spec.backoff_limit_per_index is None:
        yield required(f"{path}.backoffLimitPerIndex", "when maxFailedIndexes is specified")


def _managed_by(name: str | None, path: str) -> Iterator[Cause]:
    if name is None:
        return
    domain, _, rest = name.partition("/")
    if not name:
        yield required(path)
    elif not (domain and rest):
        yield invalid(path, name, 'must be a domain-prefixed path (such as "acme.io/foo")')
    else:
        for fault in dns_subdomain(domain):
            yield invalid(path, domain, fault)
        if not _PATH_RE.fullmatch(rest):
            yield invalid(path, rest, f"Invalid path (regex used for validation is '{_PATH}')")
    if len(name.encode()) > _MAX_MANAGED_BY_BYTES:
        yield too_long(path, _MAX_MANAGED_BY_BYTES)


def _completion_mode(spec: JobSpec, path: str) -> Iterator[Cause]:
    if spec.completion_mode == "Indexed":
        yield from _validate_indexed(spec, path)
    elif spec.completion_mode in ("", "NonIndexed"):
        for name, limit in (
            ("backoffLimitPerIndex", spec.backoff_limit_per_index),
            ("maxFailedIndexes", spec.max_failed_indexes),
        ):
            if limit is not None:
                yield invalid(f"{path}.{name}", limit, "requires indexed completion mode")
    else:
        yield not_supported(f"{path}.completionMode", spec.completion_mode, ("NonIndexed", "Indexed"))


def _validate_indexed(spec: JobSpec, path: str) -> Iterator[Cause]:
    failed, completions = spec.max_failed_indexes, spec.completions
    if completions is None:
        yield required(f"{path}.completions", "when completion mode is Indexed")
    if (spec.parallelism or 0) > _MAX_INDEXED:
        detail = f"must be less than or equal to {_MAX_INDEXED} when completion mode is Indexed"
        yield invalid(f"{path}.parallelism", spec.parallelism, detail)
    if failed is not None and completions is not None and failed > completions:
        yield invalid(f"{path}.maxFailedIndexes", failed, "must be less than or equal to completions")
    if failed is not None and failed > _MAX_INDEXED:
        yield invalid(f"{path}.maxFailedIndexes", failed, f"must be less than or equal to {_MAX_INDEXED}")
    if completions is not None and completions > _MANY_COMPLETIONS and spec.backoff_limit_per_index is not None:
        yield from _many_completions(spec, path)


def _many_completions(spec: JobSpec, path: str) -> Iterator[Cause]:
    """Completed and failed indexes are both kept as text; with this many, either must stay short."""
    if spec.max_failed_indexes is None:
        yield required(f"{path}.maxFailedIndexes", f"must be specified when completions is above {_MANY_COMPLETIONS}")
    for name, count in (("parallelism", spec.parallelism), ("maxFailedIndexes", spec.max_failed_indexes)):
        if count is not None and count > _MAX_WITH_MANY:
            detail = (
                f"must be less than or equal to {_MAX_WITH_MANY} when completions are above {_MANY_COMPLETIONS} "
                "and used with backoff limit per index"
            )
            yield invalid(f"{path}.{name}", count, detail)


def _replacement(spec: JobSpec, path: str) -> Iterator[Cause]:
    supported = ("Failed",) if spec.pod_failure_policy is not None else ("Failed", "TerminatingOrFailed")
    if spec.pod_replacement_policy and spec.pod_replacement_policy not in supported:
        yield not_supported(path, spec.pod_replacement_policy, supported)


def _restart_policy(spec: JobSpec, path: str) -> Iterator[Cause]:
    policy = spec.template.spec.restart_policy
    if policy in ("", "Always"):  # Always is what a pod gets by default: nobody chose it
        yield required(path, 'valid values: "OnFailure", "Never"')
    elif policy not in ("OnFailure", "Never"):
        yield not_supported(path, policy, ("OnFailure", "Never"))
    elif policy != "Never" and spec.pod_failure_policy is not None:
        yield invalid(path, policy, 'only "Never" is supported when podFailurePolicy is specified')


def validate_update(new: Job, old: Job) -> list[Cause]:
    """Find the changes that are not allowed, beyond `validate`."""
    before, after = old.spec, new.spec
    kept = {
        "spec.selector": (after.selector, before.selector),
        "spec.template": (after.template, _template_to_compare(new, old)),
        "spec.completionMode": (after.completion_mode, before.completion_mode),
        "spec.podFailurePolicy": (after.pod_failure_policy, before.pod_failure_policy),
        "spec.backoffLimitPerIndex": (after.backoff_limit_per_index, before.backoff_limit_per_index),
        "spec.managedBy": (after.managed_by, before.managed_by),
        "spec.successPolicy": (after.success_policy, before.success_policy),
    }
    changed = (invalid(field, now, IMMUTABLE) for field, (now, was) in kept.items() if now != was)
    scheduling = validate_scheduling_update(after.scheduling, before.scheduling, "spec.scheduling")
    annotations = validate_annotations_update(new.metadata, old.metadata)
    return [*_completions_update(after, before), *changed, *scheduling, *annotations]


def _completions_update(new: JobSpec, old: JobSpec) -> Iterator[Cause]:
    """An Indexed Job grows and shrinks, if all of its indexes may run at once before and after."""
    if new.completions == old.completions:
        return
    if new.completion_mode != "Indexed":
        yield invalid("spec.completions", new.completions, IMMUTABLE)
    elif new.completions is not None and new.completions != new.parallelism:
        detail = "can only be modified in tandem with spec.parallelism"
        yield invalid("spec.completions", new.completions, detail)


def _template_to_compare(new: Job, old: Job) -> PodTemplateSpec:
    """The old template, with what may change while nothing runs taken from the new one."""
    after, before = new.spec.template, old.spec.template
    if not _is_at_rest(old):
        return before
    metadata = replace(before.metadata, labels=after.metadata.labels, annotations=after.metadata.annotations)
    spec = replace(
        before.spec,
        affinity=_with_node_affinity(after.spec.affinity, before.spec.affinity),
        node_selector=after.spec.node_selector,
        tolerations=after.spec.tolerations,
        scheduling_gates=after.spec.scheduling_gates,
        containers=_with_resources(after.spec.containers, before.spec.containers),
        init_containers=_with_resources(after.spec.init_containers, before.spec.init_containers),
    )
    return replace(before, metadata=metadata, spec=spec)


def _is_at_rest(job: Job) -> bool:
    """Suspended, and without pods: it never started, or all that it had are gone."""
    stopped = is_true(job, "Suspended") and job.status.active == 0
    return bool(job.spec.suspend) and (job.status.start_time is None or stopped)


def _with_node_affinity(new: Affinity | None, old: Affinity | None) -> Affinity | None:
    kept = replace(old or Affinity(), node_affinity=new.node_affinity if new else None)
    return None if new is None and kept == Affinity() else kept


def _with_resources(new: tuple[Container, ...], old: tuple[Container, ...]) -> tuple[Container, ...]:
    if len(new) != len(old):
        return old
    return tuple(replace(before, resources=after.resources) for after, before in zip(new, old, strict=True))

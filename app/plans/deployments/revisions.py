"""Revisions of a Deployment: one ReplicaSet for each template, found again by the template and named by its hash. Pure.

`deployment` calls it. kubectl and Helm find the ReplicaSets by the annotations and labels here, which are Kubernetes' own.
"""

from collections.abc import Callable, Sequence
from hashlib import blake2s

import msgspec
from msgspec.structs import replace

from app.kinds.apps.deployment import Deployment
from app.kinds.apps.replicaset import ReplicaSet, ReplicaSetSpec
from app.kinds.pod.pod_schema import PodTemplateSpec
from app.machinery.base import LabelSelector, ObjectMeta
from app.machinery.meta.owner_references import controller_reference
from app.plans.admission import refusals
from app.plans.deployments.rollout import Limits

HASH = "pod-template-hash"
REVISION = "deployment.kubernetes.io/revision"
DESIRED, MOST = "deployment.kubernetes.io/desired-replicas", "deployment.kubernetes.io/max-replicas"
_OWN = frozenset({
    "kubectl.kubernetes.io/last-applied-configuration", REVISION, DESIRED, MOST, refusals.ANNOTATION,
    "deployment.kubernetes.io/revision-history",
})  # fmt: skip
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"  # spells no words
_CHARACTERS = 10


def find_new(deployment: Deployment, replica_sets: Sequence[ReplicaSet]) -> ReplicaSet | None:
    """The ReplicaSet of the newest template: of several the oldest, so that none takes turns with another.

    Templates are compared, not hashes: a new default in a later version of Jobplane must not replace pods.
    """
    wanted = _without_hash(deployment.spec.template)
    alive = (each for each in replica_sets if each.metadata.deletion_timestamp is None)
    return next((each for each in alive if _without_hash(each.spec.template) == wanted), None)


def _without_hash(template: PodTemplateSpec) -> PodTemplateSpec:
    labels = {key: value for key, value in template.metadata.labels.items() if key != HASH}
    return replace(template, metadata=replace(template.metadata, labels=labels))


def revision_of(replica_set: ReplicaSet) -> int:
    text = replica_set.metadata.annotations.get(REVISION, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 18 else 0


def next_revision(new: ReplicaSet | None, old: Sequence[ReplicaSet]) -> int:
    """The revision that the newest template has: that of a rollback is the highest again."""
    return max(max(map(revision_of, old), default=0) + 1, revision_of(new) if new else 0)


def make_new(
    deployment: Deployment, count: int, revision: int, limits: Limits, is_taken: Callable[[str], bool]
) -> tuple[ReplicaSet, int]:
    """A ReplicaSet of the newest template with so many pods, and how many names were taken before its own was free."""
    meta, spec = deployment.metadata, deployment.spec
    collisions = deployment.status.collision_count or 0
    while is_taken(f"{meta.name}-{hash_of(spec.template, collisions)}"):
        collisions += 1
    mark = {HASH: hash_of(spec.template, collisions)}
    labels = spec.template.metadata.labels | mark
    selector = spec.selector or LabelSelector()
    made = ReplicaSet(
        api_version="apps/v1",
        kind="ReplicaSet",
        metadata=ObjectMeta(
            name=f"{meta.name}-{mark[HASH]}",
            namespace=meta.namespace,
            labels=labels,
            annotations=annotate({}, deployment, revision, limits),
            owner_references=(controller_reference("apps/v1", "Deployment", meta),),
        ),
        spec=ReplicaSetSpec(
            replicas=count,
            min_ready_seconds=spec.min_ready_seconds,
            selector=replace(selector, match_labels=selector.match_labels | mark),
            template=replace(spec.template, metadata=replace(spec.template.metadata, labels=labels)),
        ),
    )
    return made, collisions


def hash_of(template: PodTemplateSpec, collisions: int) -> str:
    text = msgspec.json.encode(template) + (b"" if collisions == 0 else str(collisions).encode())
    number, letters = int.from_bytes(blake2s(text, digest_size=8).digest()), []
    for _ in range(_CHARACTERS):
        number, place = divmod(number, len(_ALPHABET))
        letters.append(_ALPHABET[place])
    return "".join(letters)


def annotate(before: dict[str, str], deployment: Deployment, revision: int, limits: Limits) -> dict[str, str]:
    """Annotations of the ReplicaSet of the newest template: its own, and the Deployment's, such as a change's cause."""
    copied = {key: value for key, value in deployment.metadata.annotations.items() if key not in _OWN}
    return before | copied | {REVISION: str(revision)} | _count(limits)


def _count(limits: Limits) -> dict[str, str]:
    return {DESIRED: str(limits.replicas), MOST: str(limits.replicas + limits.surge)}

"""The persistent volume controller: binds claims, makes volumes, and sees to what becomes of them.

It does the work of several of Kubernetes' controllers: the binder, protection of claims and volumes, expansion, generic ephemeral
volumes, and the provisioners jobplane.dev/shared-folder and jobplane.dev/local. Claims that wait for their first pod are bound by
the scheduler. The decisions are in `app.plans.volumes`; agents make and remove the folders.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from typing import cast

from app.controllers.planned_write import PlannedWrite
from app.controllers.volumes.volume_index import VolumeIndex, as_volume, claim_key
from app.kinds.core.node import KIND as NODES
from app.kinds.core.node import Node
from app.kinds.pod.pod import KIND as PODS
from app.kinds.pod.pod import Pod, is_terminal
from app.kinds.storage.persistentvolume import KIND as VOLUMES
from app.kinds.storage.persistentvolume import PersistentVolume
from app.kinds.storage.persistentvolumeclaim import KIND as CLAIMS
from app.kinds.storage.persistentvolumeclaim import PersistentVolumeClaim, class_name
from app.kinds.storage.storageclass import KIND as CLASSES
from app.kinds.storage.storageclass import default_class
from app.machinery.base import Object
from app.machinery.errors import ApiError
from app.plans.admission import pod_admission
from app.plans.plan import Create, Emit, Plan
from app.plans.volumes import binding, ephemeral
from app.plans.volumes.claims import plan_claim
from app.plans.volumes.protection import plan_protection
from app.plans.volumes.volumes import ReclaimNodes, plan_volume
from app.registry.admission.admission import NamespaceLocks, RuleCache
from app.store import Key, Mirror

RETRY = timedelta(seconds=30)  # of a claim that a quota refused


class PersistentVolumeController:
    component = "persistentvolume-controller"
    kinds = frozenset({PODS.resource, CLAIMS.resource, VOLUMES.resource, CLASSES.resource, NODES.resource})

    def __init__(self, mirror: Mirror, locks: NamespaceLocks) -> None:
        self._mirror, self._locks = mirror, locks
        self._rules = RuleCache(mirror)
        self._index = VolumeIndex(mirror)
        self._unbound: defaultdict[str, set[Key]] = defaultdict(set)  # claims, by class
        self._reclaimed: set[Key] = set()  # volumes whose data are to be removed
        self._nodes: dict[str, Node] = {}
        self._ready: dict[str, Node] = {}  # nodes whose agents answer
        self._reported: dict[Key, tuple[str, str, str]] = {}  # why each claim waits, as its event says

    def lock(self, key: Key) -> AbstractAsyncContextManager[object]:
        return self._locks.of(key.namespace)

    def on_event(self, key: Key, before: Object | None, now: Object | None) -> Iterable[Key]:
        if key.kind == PODS.resource:
            return self._on_pod(key, cast("Pod | None", now))
        if key.kind == CLAIMS.resource:
            return self._on_claim(
                key, cast("PersistentVolumeClaim | None", before), cast("PersistentVolumeClaim | None", now)
            )
        if key.kind == VOLUMES.resource:
            return self._on_volume(key, as_volume(before), as_volume(now))
        if key.kind == CLASSES.resource:
            return [each for claims in self._unbound.values() for each in claims]
        if key.kind == NODES.resource:
            return self._on_node(key.name, cast("Node | None", now))
        return []

    def _on_pod(self, key: Key, now: Pod | None) -> Iterable[Key]:
        if now is not None and not now.spec.volumes:
            return ()
        claims = self._index.on_pod(key, now)
        has_ephemeral = now is not None and any(each.ephemeral is not None for each in now.spec.volumes)
        return [*claims, key] if has_ephemeral else claims

    def _on_claim(
        self, key: Key, before: PersistentVolumeClaim | None, now: PersistentVolumeClaim | None
    ) -> Iterable[Key]:
        if before is not None:
            self._unbound[class_name(before)].discard(key)
        if now is None:
            self._reported.pop(key, None)
            return self._index.volumes_of_claim(key)
        if not binding.is_bound(now):
            self._unbound[class_name(now)].add(key)
        return [key, *self._index.volumes_of_claim(key)]

    def _on_volume(self, key: Key, before: PersistentVolume | None, now: PersistentVolume | None) -> Iterable[Key]:
        is_open = self._index.on_volume(before, now)
        keys = [each for volume in (before, now) if volume is not None for each in self._index.claims_of_volume(volume)]
        if now is None:
            self._reclaimed.discard(key)
        else:
            keys.append(key)
        if is_open:
            changed = (volume for volume in (before, now) if volume is not None)
            keys += (each for volume in changed for each in self._unbound.get(volume.spec.storage_class_name, ()))
        return keys

    def _on_node(self, name: str, now: Node | None) -> Iterable[Key]:
        was_ready = name in self._ready
        self._ready.pop(name, None)
        self._nodes.pop(name, None)
        if now is not None:
            self._add_node(now)
        return list(self._reclaimed) if now is None or was_ready != (name in self._ready) else ()

    def _add_node(self, node: Node) -> None:
        self._nodes[node.metadata.name] = node
        if any(each.type == "Ready" and each.status == "True" for each in node.status.conditions):
            self._ready[node.metadata.name] = node

    def enqueue_all(self) -> Iterable[Key]:
        self._index.rebuild()
        self._unbound.clear()
        self._nodes, self._ready = {}, {}
        for each in self._mirror.all(NODES.resource):
            self._add_node(cast("Node", each))
        keys: list[Key] = []
        for each in self._mirror.all(CLAIMS.resource):
            claim, key = cast("PersistentVolumeClaim", each), claim_key(each.metadata.namespace, each.metadata.name)
            if not binding.is_bound(claim):
                self._unbound[class_name(claim)].add(key)
            keys.append(key)
        keys += (Key(VOLUMES.resource, "", each.metadata.name) for each in self._mirror.all(VOLUMES.resource))
        for each in self._mirror.all(PODS.resource):
            if any(volume.ephemeral is not None for volume in cast("Pod", each).spec.volumes):
                keys.append(Key(PODS.resource, each.metadata.namespace, each.metadata.name))
        return keys

    def reconcile(self, key: Key, now: datetime) -> Sequence[PlannedWrite]:
        if key.kind == CLAIMS.resource:
            claim = self._index.claim(key)
            return self._reconcile_claim(key, claim, now) if claim is not None else []
        if key.kind == PODS.resource:
            return self._make_claims(cast("Pod | None", self._mirror.get(key)), now)
        volume = as_volume(self._mirror.get(key))
        return self._reconcile_volume(key, volume, now) if volume is not None else []

    def _reconcile_claim(self, key: Key, claim: PersistentVolumeClaim, now: datetime) -> Sequence[PlannedWrite]:
        if claim.metadata.deletion_timestamp is not None:
            protection = plan_protection(claim, self._index.pods(key))
            if protection.actions:
                return [PlannedWrite(protection)]
        plan, waiting = plan_claim(
            claim,
            self._index.volume(claim.spec.volume_name) if claim.spec.volume_name else None,
            self._index.candidates(claim),
            self._index.storage_class(class_name(claim)),
            default_class(self._index.storage_classes()),
            now,
        )
        if waiting is not None and not self._is_reported(key, waiting):
            plan = Plan((*plan.actions, waiting), plan.again_at)
        return [PlannedWrite(plan)] if plan.actions else []

    def _is_reported(self, key: Key, waiting: Emit) -> bool:
        """An event is written when a claim begins to wait for something, and not at each look."""
        said = (waiting.about.metadata.uid, waiting.reason, waiting.message)
        if self._reported.get(key) == said:
            return True
        self._reported[key] = said
        return False

    def _reconcile_volume(self, key: Key, volume: PersistentVolume, now: datetime) -> Sequence[PlannedWrite]:
        claims = self._index.claims_of_volume(volume)
        claim = self._index.claim(claims[0]) if claims else None
        plan = plan_volume(volume, claim, ReclaimNodes(self._nodes, self._ready), now)
        (self._reclaimed.add if plan.again_at is not None else self._reclaimed.discard)(key)
        return [PlannedWrite(plan)] if plan.actions or plan.again_at is not None else []

    def _make_claims(self, pod: Pod | None, now: datetime) -> Sequence[PlannedWrite]:
        """Claims of the generic ephemeral volumes of a pod that has not ended."""
        if pod is None or is_terminal(pod) or pod.metadata.deletion_timestamp is not None:
            return []
        writes = []
        for volume in pod.spec.volumes:
            if volume.ephemeral is None:
                continue
            claim = self._index.claim(claim_key(pod.metadata.namespace, ephemeral.claim_name(pod, volume)))
            if claim is None:
                writes.append(PlannedWrite(self._plan_ephemeral(pod, ephemeral.make_claim(pod, volume), now)))
        return writes

    def _plan_ephemeral(self, pod: Pod, claim: PersistentVolumeClaim, now: datetime) -> Plan:
        rules = self._rules.rules(pod.metadata.namespace)
        prepared = CLAIMS.prepare(claim)
        try:
            charged = pod_admission.admit(CLAIMS.resource, prepared, rules)
        except ApiError as error:
            why = f"ephemeral volume: create PVC {claim.metadata.name}: {error.message}"
            return Plan((Emit("Warning", "FailedCreate", why, pod),), now + RETRY)
        return Plan((Create(prepared), *charged))

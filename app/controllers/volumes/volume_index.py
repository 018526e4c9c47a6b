"""Index of persistent storage over the mirror, kept as objects change: for the persistent volume controller and the scheduler."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TypeVar, cast

from app.kinds.pod.pod import KIND as PODS
from app.kinds.pod.pod import Pod, is_terminal
from app.kinds.storage.persistentvolume import KIND as VOLUMES
from app.kinds.storage.persistentvolume import PersistentVolume
from app.kinds.storage.persistentvolumeclaim import KIND as CLAIMS
from app.kinds.storage.persistentvolumeclaim import PersistentVolumeClaim, class_name
from app.kinds.storage.storageclass import KIND as CLASSES
from app.kinds.storage.storageclass import StorageClass
from app.machinery.base import Object
from app.plans.volumes import binding
from app.plans.volumes.pod_volumes import Storage
from app.plans.volumes.protection import claim_names, uses
from app.store import Key, Mirror

K = TypeVar("K")


def claim_key(namespace: str, name: str) -> Key:
    return Key(CLAIMS.resource, namespace, name)


def volume_key(name: str) -> Key:
    return Key(VOLUMES.resource, "", name)


class VolumeIndex:
    """Volumes that may be bound, by class and by the claim that they are reserved for; and the pods that name each claim."""

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror
        self._free: defaultdict[str, dict[str, PersistentVolume]] = defaultdict(dict)  # by class and name
        self._reserved: defaultdict[Key, dict[str, PersistentVolume]] = defaultdict(dict)  # by claim and name
        self._pods: defaultdict[Key, dict[Key, Pod]] = defaultdict(dict)  # that have not ended, by claim
        self._claims: dict[Key, tuple[Key, ...]] = {}  # of each pod
        self._nodes: defaultdict[Key, Counter[str]] = defaultdict(Counter)  # how many pods use a claim on each
        self.storage = Storage(
            claim=lambda namespace, name: self.claim(claim_key(namespace, name)),
            volume=self.volume,
            volumes=self.candidates,
            storage_class=self.storage_class,
            users=self.users,
            nodes=self.nodes,
        )

    def rebuild(self) -> None:
        for table in (self._free, self._reserved, self._pods, self._claims, self._nodes):
            table.clear()
        for each in self._mirror.all(VOLUMES.resource):
            self.on_volume(None, cast("PersistentVolume", each))
        for each in self._mirror.all(PODS.resource):
            self.on_pod(Key(PODS.resource, each.metadata.namespace, each.metadata.name), cast("Pod", each))

    def on_volume(self, before: PersistentVolume | None, now: PersistentVolume | None) -> bool:
        """Take in a change. Returns whether claims of its class may be bound otherwise now."""
        was_free = before is not None and self._remove(self._free, before.spec.storage_class_name, before)
        if before is not None and before.spec.claim_ref is not None:
            self._remove(self._reserved, _claim_of(before), before)
        if now is None:
            return was_free
        if now.spec.claim_ref is not None:
            self._reserved[_claim_of(now)][now.metadata.name] = now
        is_free = binding.is_free(now)
        if is_free:
            self._free[now.spec.storage_class_name][now.metadata.name] = now
        return was_free or is_free

    @staticmethod
    def _remove(table: dict[K, dict[str, PersistentVolume]], key: K, volume: PersistentVolume) -> bool:
        there = table.get(key)
        if there is None or there.pop(volume.metadata.name, None) is None:
            return False
        if not there:
            del table[key]
        return True

    def on_pod(self, key: Key, now: Pod | None) -> Mapping[Key, bool]:
        """Take in a change. Returns the claims that the pod names, or named, and whether other nodes use them now."""
        known = self._claims.pop(key, ())
        if now is None or is_terminal(now):
            claims: tuple[Key, ...] = ()
        else:
            claims = tuple(dict.fromkeys(claim_key(key.namespace, name) for name in claim_names(now)))
        before = {each: set(self._nodes.get(each, ())) for each in (*known, *claims)}
        for each in known:
            self._count(each, self._pods[each].pop(key), -1)
            if not self._pods[each]:
                del self._pods[each]
        if now is not None and claims:
            self._claims[key] = claims
            for each in claims:
                self._pods[each][key] = now
                self._count(each, now, 1)
        return {each: nodes != set(self._nodes.get(each, ())) for each, nodes in before.items()}

    def _count(self, claim: Key, pod: Pod, change: int) -> None:
        if not uses(pod):
            return
        nodes = self._nodes[claim]
        nodes[pod.spec.node_name] += change
        if not nodes[pod.spec.node_name]:
            del nodes[pod.spec.node_name]
        if not nodes:
            del self._nodes[claim]

    def claim(self, key: Key) -> PersistentVolumeClaim | None:
        return cast("PersistentVolumeClaim | None", self._mirror.get(key))

    def volume(self, name: str) -> PersistentVolume | None:
        return cast("PersistentVolume | None", self._mirror.get(volume_key(name)))

    def storage_class(self, name: str) -> StorageClass | None:
        return cast("StorageClass | None", self._mirror.get(Key(CLASSES.resource, "", name))) if name else None

    def storage_classes(self) -> Iterable[StorageClass]:
        return (cast("StorageClass", each) for each in self._mirror.all(CLASSES.resource))

    def candidates(self, claim: PersistentVolumeClaim) -> Iterator[PersistentVolume]:
        """Volumes that the claim may get: those reserved for it, and free ones of its class."""
        key = claim_key(claim.metadata.namespace, claim.metadata.name)
        yield from self._reserved.get(key, {}).values()
        yield from self._free.get(class_name(claim), {}).values()

    def claims_of_volume(self, volume: PersistentVolume) -> list[Key]:
        """The claim that the volume names, if it names one."""
        return [_claim_of(volume)] if volume.spec.claim_ref is not None else []

    def volumes_of_claim(self, key: Key) -> list[Key]:
        """Volumes that name the claim."""
        return [volume_key(name) for name in self._reserved.get(key, ())]

    def pods(self, claim: Key) -> Collection[Pod]:
        """Pods that name the claim and have not ended."""
        return self._pods[claim].values() if claim in self._pods else ()

    def users(self, namespace: str, name: str) -> Collection[str]:
        """UIDs of the pods that use a claim now."""
        return [pod.metadata.uid for pod in self.pods(claim_key(namespace, name)) if uses(pod)]

    def nodes(self, namespace: str, name: str) -> tuple[str, ...]:
        """Nodes with pods that use a claim now, in order."""
        return tuple(sorted(self._nodes.get(claim_key(namespace, name), ())))


def _claim_of(volume: PersistentVolume) -> Key:
    reference = volume.spec.claim_ref
    return claim_key(reference.namespace, reference.name) if reference is not None else claim_key("", "")


def as_volume(obj: Object | None) -> PersistentVolume | None:
    return cast("PersistentVolume | None", obj)

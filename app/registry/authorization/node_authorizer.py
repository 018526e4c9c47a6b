"""Node authorizer: which ConfigMaps, Secrets, claims and volumes the agent of a node may read: those that its pods refer to."""

from collections.abc import Callable, Iterator
from typing import cast

from app.kinds.pod.pod import KIND as PODS
from app.kinds.pod.pod import Pod, is_terminal
from app.kinds.storage.persistentvolume import KIND as VOLUMES
from app.kinds.storage.persistentvolume import PersistentVolume, reclaim_node
from app.kinds.storage.persistentvolumeclaim import KIND as CLAIMS
from app.plans.volumes.protection import claim_names
from app.registry.codec import decode
from app.registry.registry import Registry
from app.store import Key, Query

Reference = tuple[str, str]  # ("configmaps", "secrets" or "persistentvolumeclaims", name)


async def is_referenced(registry: Registry, namespace: str, wanted: Reference, owns: Callable[[str], bool]) -> bool:
    """Return whether a pod that still runs on one of the nodes that `owns` accepts refers to the object."""
    page = await registry.store.list(Query(kind=PODS.resource, namespace=namespace))
    mine = (head for head in page.heads if owns(head.selector_index.fields.get("spec.nodeName", "")))
    pods = (cast("Pod", decode(PODS, head)) for head in mine)
    return any(wanted in set(references(pod)) for pod in pods if not is_terminal(pod))


async def is_volume_referenced(registry: Registry, name: str, owns: Callable[[str], bool]) -> bool:
    """Return whether a volume's claim is referred to in that way, or one of the nodes is to remove its data."""
    head = await registry.store.get(Key(VOLUMES.resource, "", name))
    if head is None:
        return False
    volume = cast("PersistentVolume", decode(VOLUMES, head))
    if owns(reclaim_node(volume)):
        return True
    claim = volume.spec.claim_ref
    return claim is not None and await is_referenced(registry, claim.namespace, (CLAIMS.resource, claim.name), owns)


def references(pod: Pod) -> Iterator[Reference]:
    for secret in pod.spec.image_pull_secrets:
        yield "secrets", secret.name
    for container in (*pod.spec.init_containers, *pod.spec.containers):
        for source in container.env_from:
            yield from _references(source.config_map_ref, source.secret_ref)
        for variable in container.env:
            if variable.value_from is not None:
                yield from _references(variable.value_from.config_map_key_ref, variable.value_from.secret_key_ref)
    for name in claim_names(pod):
        yield CLAIMS.resource, name
    for volume in pod.spec.volumes:
        yield from _references(volume.config_map, None)
        if volume.secret is not None:
            yield "secrets", volume.secret.secret_name
        for part in volume.projected.sources if volume.projected else ():
            yield from _references(part.config_map, part.secret)


def _references(config_map: object, secret: object) -> Iterator[Reference]:
    if config_map is not None:
        yield "configmaps", getattr(config_map, "name", "")
    if secret is not None:
        yield "secrets", getattr(secret, "name", "")

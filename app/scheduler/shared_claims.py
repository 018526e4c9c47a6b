"""Pods of a gang that share a claim which one node at a time can have: they are placed on one node, or stay pending.

Such a claim is `ReadWriteOnce`, or will be on the disk of a node. `schedule_together` takes the place of `placement.schedule` for
gangs. Pods that are placed one by one do not need it: the first of them decides where the claim is, and the filter of volumes
keeps the others there.
"""

import dataclasses
from collections.abc import Iterable, Sequence
from itertools import chain

from app.kinds.pod.pod import Pod
from app.kinds.storage.persistentvolumeclaim import is_single_node
from app.kinds.storage.storageclass import LOCAL
from app.plans.volumes.pod_volumes import ON_ANOTHER_NODE, PodVolumes, UnboundClaim
from app.scheduler.cache import Cluster
from app.scheduler.filters import Diagnosis, max_fit_count
from app.scheduler.placement import Pending, PlacementResult, schedule
from app.scheduler.pod_info import PodInfo

# Nodes that are tried for one set of pods. They are ranked by how many of the pods fit by resources, which is seldom wrong.
MAX_NODES = 64


def schedule_together(pending: Iterable[Pending], cluster: Cluster) -> PlacementResult:
    """Place the pods, those first that share a claim of one node. They remain placed: use a trial to roll back."""
    pods = list(pending)
    sets = find_sharers(pods)
    if not sets:
        return schedule(pods, cluster)
    results = [_place_on_one_node(each, cluster) for each in sets]
    shared = {pod.metadata.uid for each in sets for pod, _ in each}
    results.append(schedule([each for each in pods if each[0].metadata.uid not in shared], cluster))
    return PlacementResult(
        [*chain.from_iterable(each.bound for each in results)], [*chain.from_iterable(each.unbound for each in results)]
    )


def find_sharers(pods: Iterable[Pending]) -> list[list[Pending]]:
    """Pods that belong on one node, by what they share, directly or by way of others. In the order given."""
    found: list[tuple[set[str], list[Pending]]] = []
    for each in pods:
        claims = _claims_of_one_node(each[1].volumes)
        if not claims:
            continue
        joined = [one for one in found if one[0] & claims]
        found = [one for one in found if not one[0] & claims]
        found.append((claims.union(*(one[0] for one in joined)), [*(pod for one in joined for pod in one[1]), each]))
    return [pods for _, pods in found if len(pods) > 1]


def _claims_of_one_node(volumes: PodVolumes | None) -> set[str]:
    """UIDs."""
    if volumes is None:
        return set()
    return {*volumes.single_node, *(each.claim.metadata.uid for each in volumes.unbound if _stays_on_a_node(each))}


def _stays_on_a_node(unbound: UnboundClaim) -> bool:
    """Whether one node at a time can mount the claim, whatever volume it gets."""
    if unbound.volumes:
        return all(each.spec.node_affinity is not None for each in unbound.volumes)
    made_by = unbound.storage_class
    return made_by is not None and (made_by.provisioner == LOCAL or is_single_node(unbound.claim))


def _place_on_one_node(pods: Sequence[Pending], cluster: Cluster) -> PlacementResult:
    """The fullest node that takes all; if there is none, the one that takes most."""
    best, most = "", 0
    for name, count in _rank_nodes(pods, cluster):
        if count <= most:
            break
        with cluster.trial() as trial:
            placed = _place(pods, name, cluster)
            if len(placed) == len(pods):
                trial.commit()
                return PlacementResult([(pod, name) for pod, _ in placed], [])
        if len(placed) > most:
            best, most = name, len(placed)
    placed = _place(pods, best, cluster) if best else []
    uids = {pod.metadata.uid for pod, _ in placed}
    diagnoses: dict[bytes, Diagnosis] = {}  # of classes of pods
    unbound = []
    for pod, info in pods:
        if pod.metadata.uid not in uids:
            if info.key not in diagnoses:
                diagnoses[info.key] = _diagnose(pod, info, cluster)
            unbound.append((pod, diagnoses[info.key]))
    return PlacementResult([(pod, best) for pod, _ in placed], unbound)


def _rank_nodes(pods: Sequence[Pending], cluster: Cluster) -> list[tuple[str, int]]:
    """Nodes to try, and an upper bound of the pods that fit each."""
    infos = {info.key: info for _, info in pods}.values()
    counts = {name: max_fit_count(node_info, infos) for name, node_info in cluster.node_infos.items()}
    fits = sorted((-min(count, len(pods)), count, name) for name, count in counts.items() if count)
    return [(name, -fewer) for fewer, _, name in fits[:MAX_NODES]]


def _place(pods: Iterable[Pending], name: str, cluster: Cluster) -> list[Pending]:
    placed: list[Pending] = []
    for pod, info in pods:
        if not cluster.filter_reasons(pod, info, name):
            cluster.place(pod, name, info)
            placed.append((pod, info))
    return placed


def _diagnose(pod: Pod, info: PodInfo, cluster: Cluster) -> Diagnosis:
    """Nodes that would take the pod alone cannot have its claim."""
    found = cluster.ranking(pod, info).diagnose()
    elsewhere = {name: (ON_ANOTHER_NODE,) for name, reasons in found.reasons.items() if not reasons}
    return dataclasses.replace(
        found, reasons={**found.reasons, **elsewhere}, unresolvable=found.unresolvable | elsewhere.keys(), hint=""
    )

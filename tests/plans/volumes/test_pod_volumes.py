"""On which nodes a pod can have its claims, in kube-scheduler's words."""

from typing import Any

import pytest
from msgspec.structs import replace

from app.kinds.pod.pod import Pod
from app.kinds.storage.persistentvolume import PersistentVolume
from app.kinds.storage.persistentvolume_schema import CSIPersistentVolumeSource
from app.kinds.storage.persistentvolumeclaim import PersistentVolumeClaim
from app.kinds.storage.storageclass import SHARED_FOLDER, TopologySelectorTerm
from app.kinds.storage.storageclass_schema import TopologySelectorLabelRequirement
from app.plans.plan import Create, Update
from app.plans.volumes import binding
from app.plans.volumes.pod_volumes import PodVolumes, Storage, bind_claims, has_claims, resolve
from app.scheduler.filters import filter_node
from app.scheduler.pod_info import pod_info_of
from tests.plans.volumes.storage import HAND_MADE, LOCAL, NOW, SHARED, a_claim, a_volume, stored, with_claims
from tests.scheduler.cluster import HOST, a_cluster, a_node, a_pod

CLASSES = (LOCAL, SHARED, HAND_MADE)


def a_pod_with(*claims: str) -> Pod:
    pod = a_pod()
    return replace(pod, spec=replace(pod.spec, volumes=with_claims(pod, *claims)))


def bound(claim: PersistentVolumeClaim, volume: PersistentVolume) -> PersistentVolumeClaim:
    return binding.bound_claim(claim, volume)


def volumes_of(pod: Pod, storage: Storage) -> PodVolumes:
    found = resolve(pod, storage)
    assert found is not None
    return found


LOST = replace(a_claim(volume="v"), status=replace(a_claim().status, phase="Lost"))
GOING = a_claim(metadata={"deletion_timestamp": NOW})
SINGLE = bound(a_claim(modes=("ReadWriteOncePod",)), a_volume(modes=("ReadWriteOncePod",)))


MOVES = a_volume(csi=CSIPersistentVolumeSource(driver=SHARED_FOLDER, volume_handle="h"), host_path=None)


@pytest.mark.parametrize(
    ("storage", "expected"),
    [
        pytest.param(stored(), 'persistentvolumeclaim "data" not found', id="not there"),
        pytest.param(stored([GOING]), 'persistentvolumeclaim "data" is being deleted', id="going"),
        pytest.param(
            stored([LOST]), 'persistentvolumeclaim "data" bound to non-existent persistentvolume "v"', id="lost"
        ),
        pytest.param(
            stored([a_claim(of="shared")], classes=CLASSES),
            "pod has unbound immediate PersistentVolumeClaims",
            id="not bound yet",
        ),
        pytest.param(
            stored([a_claim(of="gone")]), "pod has unbound immediate PersistentVolumeClaims", id="of no class"
        ),
        pytest.param(
            stored([bound(a_claim(), a_volume(node="n2"))], [a_volume(node="n2")]),
            "node(s) had volume node affinity conflict",
            id="on another node",
        ),
        pytest.param(
            stored([a_claim(of="disks")], [a_volume(of="disks", node="n2")], CLASSES),
            "node(s) didn't find available persistent volumes to bind",
            id="to be had on another node",
        ),
        pytest.param(
            stored([SINGLE], [a_volume(modes=("ReadWriteOncePod",))], users={"another": "n1"}),
            "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod",
            id="another pod's",
        ),
        pytest.param(
            stored([bound(a_claim(), MOVES)], [MOVES], users={"another": "n2"}),
            "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOnce access mode already in-use on another node",
            id="on another node now",
        ),
        pytest.param(stored([bound(a_claim(), MOVES)], [MOVES], users={"another": "n1"}), "", id="in use here"),
        pytest.param(
            stored([bound(a_claim(), a_volume())], [a_volume()], users={"another": "n2"}), "", id="not to be attached"
        ),
        pytest.param(
            stored([bound(a_claim(modes=("ReadWriteOnce", "ReadWriteMany")), MOVES)], [MOVES], users={"another": "n2"}),
            "",
            id="for many nodes",
        ),
        pytest.param(stored([bound(a_claim(), a_volume(node="n1"))], [a_volume(node="n1")]), "", id="here"),
        pytest.param(stored([bound(a_claim(), a_volume())], [a_volume()]), "", id="everywhere"),
        pytest.param(stored([a_claim(of="local")], classes=CLASSES), "", id="to be made here"),
        pytest.param(
            stored([a_claim(of="disks")], [a_volume(of="disks", node="n1")], CLASSES), "", id="to be had here"
        ),
    ],
)
def test_a_claim_is(storage: Storage, expected: str) -> None:
    pod = a_pod_with("data")

    assert filter_node(pod, a_node("n1"), volumes_of(pod, storage)) == expected


def test_two_claims_do_not_get_the_same_volume() -> None:
    storage = stored(
        [a_claim("a", of="disks"), a_claim("b", of="disks")],
        [
            a_volume("one", of="disks", node="n1"),
            a_volume("two", of="disks", node="n2"),
            a_volume("three", of="disks", node="n2"),
        ],
        CLASSES,
    )
    volumes = volumes_of(a_pod_with("a", "b"), storage)

    assert volumes.filter(a_node("n1")) != ""
    choices = volumes.choose(a_node("n2"))
    assert choices is not None
    assert {volume.metadata.name for _, volume in choices if volume} == {"two", "three"}
    assert volumes.choose(a_node("n2"), taken={"two"}) is None


def test_a_class_may_be_for_some_nodes_only() -> None:
    demand = TopologySelectorLabelRequirement(key=HOST, values=("n2",))
    local = replace(LOCAL, allowed_topologies=(TopologySelectorTerm(match_label_expressions=(demand,)),))
    volumes = volumes_of(a_pod_with("data"), stored([a_claim(of="local")], classes=[local]))

    assert [bool(volumes.filter(a_node(name))) for name in ("n1", "n2")] == [True, False]


def test_a_local_volume_is_made_for_the_pod_s_node() -> None:
    volumes = volumes_of(a_pod_with("data"), stored([a_claim(of="local")], classes=CLASSES))
    choices = volumes.choose(a_node("n1"))
    assert choices is not None
    create, update, _ = bind_claims(volumes, choices, a_node("n1"), NOW)

    assert isinstance(create, Create)
    assert isinstance(update, Update)
    made = create.object
    assert [binding.reaches(made, a_node(name)) for name in ("n1", "n2")] == [True, False]
    assert update.old == a_claim(of="local"), "the version that is stored"
    assert update.object.metadata.annotations["volume.kubernetes.io/selected-node"] == "n1"


def test_pods_share_a_scheduling_class_if_the_same_nodes_do() -> None:
    def key(*claims: PersistentVolumeClaim, volumes: Any = ()) -> bytes:
        pod = a_pod_with(*(each.metadata.name for each in claims))
        return pod_info_of(pod, resolve(pod, stored(claims, volumes, CLASSES))).key

    a, b = bound(a_claim("a"), a_volume("va")), bound(a_claim("b"), a_volume("vb"))
    assert key(a, volumes=[a_volume("va")]) == key(b, volumes=[a_volume("vb")]) == pod_info_of(a_pod()).key
    here, there = a_volume("va", node="n1"), a_volume("va", node="n2")
    assert key(bound(a_claim("a"), here), volumes=[here]) != key(bound(a_claim("a"), there), volumes=[there])
    assert key(a_claim("a", of="local")) != key(a_claim("b", of="local")), "each is bound for a pod of its own"


def test_reasons_about_the_pod_have_no_count() -> None:
    pod = a_pod_with("data")
    cluster = a_cluster([a_node("n1"), a_node("n2")])
    info = pod_info_of(pod, resolve(pod, stored()))

    said = cluster.ranking(pod, info).diagnose().text()
    assert said == '0/2 nodes are available: persistentvolumeclaim "data" not found.'
    assert has_claims(pod)
    assert not has_claims(a_pod())

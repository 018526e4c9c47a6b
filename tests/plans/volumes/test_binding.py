"""Which volume a claim gets, and what becomes of both."""

from typing import Any

import pytest
from msgspec.structs import replace

from app.kinds.storage.persistentvolume import DATA, PROTECTION, RECLAIM_NODE, PersistentVolume
from app.kinds.storage.persistentvolumeclaim import PROTECTION as CLAIM_PROTECTION
from app.kinds.storage.persistentvolumeclaim import PersistentVolumeClaim
from app.machinery.base import LabelSelector, ObjectReference
from app.plans.plan import Create, Delete, Emit, Update
from app.plans.volumes import binding
from app.plans.volumes.claims import ClaimPlan, plan_claim, provision_and_bind
from app.plans.volumes.protection import plan_protection
from app.plans.volumes.provisioning import only_node, provision
from app.plans.volumes.volumes import RECLAIM_TRIED, ReclaimNodes, after_failure, after_removal, plan_volume
from tests.plans.volumes.storage import HAND_MADE, LOCAL, NOW, SHARED, a_claim, a_volume, with_claims
from tests.scheduler.cluster import a_node, a_pod

BOTH = ("ReadWriteOnce", "ReadWriteMany")


def reserved(volume: PersistentVolume, name: str = "data", uid: str = "") -> PersistentVolume:
    reference = ObjectReference(namespace="default", name=name, uid=uid)
    return replace(volume, spec=replace(volume.spec, claim_ref=reference))


@pytest.mark.parametrize(
    ("claim", "volumes", "expected"),
    [
        pytest.param(a_claim(), [a_volume("large", "5Gi"), a_volume("small", "2Gi")], "small", id="the smallest"),
        pytest.param(a_claim(), [a_volume("b"), a_volume("a")], "a", id="of equal ones the first"),
        pytest.param(a_claim(storage="2Gi"), [a_volume()], None, id="none that is too small"),
        pytest.param(a_claim(modes=("ReadWriteMany",)), [a_volume()], None, id="none with fewer access modes"),
        pytest.param(a_claim(), [a_volume(modes=BOTH)], "v", id="one with more access modes"),
        pytest.param(a_claim(of="fast"), [a_volume()], None, id="none of another class"),
        pytest.param(a_claim(), [reserved(a_volume(), "other")], None, id="none that is reserved for another claim"),
        pytest.param(
            a_claim(), [reserved(a_volume(), uid="of-an-earlier-one")], None, id="none of an earlier claim of that name"
        ),
        pytest.param(a_claim(), [a_volume("a"), reserved(a_volume("z", "9Gi"))], "z", id="the one reserved for it"),
        pytest.param(a_claim(), [a_volume(phase="Released")], None, id="none that was released"),
        pytest.param(
            a_claim(selector=LabelSelector(match_labels={"disk": "ssd"})),
            [a_volume("a"), a_volume("z", metadata={"labels": {"disk": "ssd"}})],
            "z",
            id="one that its selector matches",
        ),
        pytest.param(a_claim(volume_mode="Block"), [a_volume()], None, id="no folder for a block device"),
    ],
)
def test_a_claim_gets(claim: PersistentVolumeClaim, volumes: list[PersistentVolume], expected: str | None) -> None:
    found = binding.find_volume(claim, volumes)

    assert (found.metadata.name if found else None) == expected


def test_claim_and_volume_name_each_other() -> None:
    volume, claim = binding.bind(a_claim(), a_volume(), NOW)

    assert isinstance(volume, Update)
    assert isinstance(claim, Update)
    bound, of = claim.object, volume.object
    assert (bound.spec.volume_name, bound.status.phase, of.spec.claim_ref.uid) == ("v", "Bound", "uid-of-data")
    assert bound.status.capacity == {"storage": "1Gi"}
    assert (bound.metadata.finalizers, of.metadata.finalizers) == ((CLAIM_PROTECTION,), (PROTECTION,))
    assert binding.bound_claim(bound, of) is bound, "what is written is stable"


def planned(claim: PersistentVolumeClaim, *volumes: PersistentVolume, of: Any = None, default: Any = None) -> ClaimPlan:
    named = next((each for each in volumes if each.metadata.name == claim.spec.volume_name), None)
    return plan_claim(claim, named, volumes, of, default, NOW)


@pytest.mark.parametrize(
    ("claim", "of", "expected"),
    [
        pytest.param(
            a_claim(),
            None,
            ("FailedBinding", "no persistent volumes available for this claim and no storage class is set"),
            id="for a volume",
        ),
        pytest.param(
            a_claim(of="gone"),
            None,
            ("ProvisioningFailed", 'storageclass.storage.k8s.io "gone" not found'),
            id="for a class",
        ),
        pytest.param(
            a_claim(of="local"),
            LOCAL,
            ("WaitForFirstConsumer", "waiting for first consumer to be created before binding"),
            id="for its first pod",
        ),
        pytest.param(
            a_claim(of="shared", volume_mode="Block"),
            SHARED,
            (
                "ProvisioningFailed",
                'failed to provision volume with StorageClass "shared": '
                "jobplane.dev/shared-folder does not support block volume provisioning",
            ),
            id="for a block device",
        ),
        pytest.param(
            a_claim(volume="v9"), None, ("FailedBinding", 'volume "v9" not found'), id="for the volume that it names"
        ),
    ],
)
def test_a_claim_waits(claim: PersistentVolumeClaim, of: Any, expected: tuple[str, str]) -> None:
    plan, waiting = planned(claim, of=of)

    assert plan.actions == ()
    assert waiting is not None
    assert (waiting.reason, waiting.message) == expected


def test_a_volume_is_made_and_bound_at_once() -> None:
    create, update, event = planned(a_claim(of="shared", storage="5Gi"), of=SHARED).plan.actions

    assert isinstance(create, Create)
    assert isinstance(update, Update)
    assert isinstance(event, Emit)
    made = create.object
    assert made.metadata.name == made.spec.csi.volume_handle == "pvc-uid-of-data"
    assert made.spec.csi.volume_attributes == {"path": "/shared"}
    assert (made.spec.capacity, made.spec.persistent_volume_reclaim_policy) == ({"storage": "5Gi"}, "Delete")
    assert update.object.spec.volume_name == made.metadata.name
    assert event.reason == "ProvisioningSucceeded"


def test_a_claim_without_a_class_gets_the_default_one_later() -> None:
    (update,) = planned(a_claim(of=None), default=LOCAL).plan.actions

    assert isinstance(update, Update)
    assert update.object.spec.storage_class_name == "local"
    assert planned(a_claim(of=""), default=LOCAL).plan.actions == (), "an empty name is a choice"


def bound_pair(of: Any = SHARED) -> tuple[PersistentVolumeClaim, PersistentVolume]:
    claim = a_claim(of=of.metadata.name)
    volume = provision(claim, of, a_node("n1"))
    _, update, _ = provision_and_bind(claim, volume, NOW)
    assert isinstance(update, Update)
    return update.object, binding.with_phase(
        replace(volume, metadata=replace(volume.metadata, uid="u-v")), "Bound", NOW
    )


def test_a_claim_whose_volume_is_gone_is_lost() -> None:
    claim, _ = bound_pair()
    update, event = planned(claim).plan.actions

    assert isinstance(update, Update)
    assert isinstance(event, Emit)
    assert (update.object.status.phase, event.reason) == ("Lost", "ClaimLost")
    assert planned(update.object).plan.actions == ()


def test_a_claim_may_grow_where_its_class_allows() -> None:
    claim, volume = bound_pair()
    wants = replace(claim, spec=replace(claim.spec, resources=a_claim(storage="7Gi").spec.resources))

    assert planned(wants, volume, of=SHARED).plan.actions == ()
    larger, event, told = planned(wants, volume, of=replace(SHARED, allow_volume_expansion=True)).plan.actions
    assert isinstance(larger, Update)
    assert isinstance(told, Update)
    assert isinstance(event, Emit)
    assert larger.object.spec.capacity == told.object.status.capacity == {"storage": "7Gi"}


# --- what becomes of a volume

NODES = {name: a_node(name) for name in ("n1", "n2")}
ALL = ReclaimNodes(NODES, NODES)


def after(volume: PersistentVolume, nodes: ReclaimNodes = ALL, claim: Any = None) -> PersistentVolume:
    """The volume once nothing is left to do, or until it is to be deleted."""
    for _ in range(5):
        plan = plan_volume(volume, claim, nodes, NOW)
        update = next((each for each in plan.actions if isinstance(each, Update)), None)
        if update is None:
            break
        volume = update.object
    return volume


def test_a_volume_follows_its_claim() -> None:
    claim, volume = bound_pair()

    assert after(replace(volume, status=replace(volume.status, phase="Pending")), claim=claim).status.phase == "Bound"
    assert after(a_volume(phase="Pending")).status.phase == "Available"
    assert after(reserved(a_volume(phase="Pending"))).status.phase == "Available", "it waits for its claim"


@pytest.mark.parametrize("of", [SHARED, LOCAL], ids=["shared", "local"])
def test_a_node_is_to_remove_the_data_of_a_deleted_claim(of: Any) -> None:
    _, volume = bound_pair(of)
    released = after(volume)

    assert released.status.phase == "Released"
    assert released.metadata.annotations[RECLAIM_NODE] == "n1"
    assert plan_volume(released, None, ALL, NOW).again_at is not None, "the node may go away before it has"
    (gone,) = plan_volume(after_removal(released), None, ALL, NOW).actions
    assert isinstance(gone, Delete)


def test_the_policy_retain_keeps_the_data() -> None:
    _, volume = bound_pair()
    kept = after(replace(volume, spec=replace(volume.spec, persistent_volume_reclaim_policy="Retain")))

    assert (kept.status.phase, RECLAIM_NODE in kept.metadata.annotations) == ("Released", False)
    assert DATA in kept.metadata.finalizers
    assert plan_volume(kept, None, ALL, NOW).actions == ()
    going = replace(kept, metadata=replace(kept.metadata, deletion_timestamp=NOW))
    assert after(going).metadata.finalizers == (), "the object goes, and nobody is asked to remove the data"


def test_the_policy_can_change_while_the_data_are_still_there() -> None:
    _, volume = bound_pair()
    released = after(volume)
    kept = after(replace(released, spec=replace(released.spec, persistent_volume_reclaim_policy="Retain")))

    assert RECLAIM_NODE not in kept.metadata.annotations


def test_a_volume_that_is_used_again_is_nobody_s_to_remove() -> None:
    released = after(bound_pair()[1])
    free = after(replace(released, spec=replace(released.spec, claim_ref=None)))

    assert (free.status.phase, RECLAIM_NODE in free.metadata.annotations) == ("Available", False)


def test_what_was_made_by_hand_is_never_removed() -> None:
    claimed = reserved(a_volume(persistent_volume_reclaim_policy="Delete"), uid="gone")
    failed = after(claimed)

    assert (failed.status.phase, failed.status.reason) == ("Failed", "VolumeFailedDelete")
    assert RECLAIM_NODE not in failed.metadata.annotations


def test_the_next_node_tries_what_one_could_not_remove() -> None:
    released = after(bound_pair()[1])
    failed = after_failure(released, "n1", "not mounted", NOW)
    assert (failed.status.phase, failed.status.message) == ("Failed", "n1: not mounted")

    second = after(failed)
    assert second.metadata.annotations[RECLAIM_NODE] == "n2"
    again = after(after_failure(second, "n2", "nor here", NOW))
    assert again.metadata.annotations[RECLAIM_NODE] == "n1", "after the last comes the first"
    assert RECLAIM_TRIED not in again.metadata.annotations


def test_a_local_volume_waits_for_its_own_node() -> None:
    _, volume = bound_pair(LOCAL)
    assert only_node(volume) == "n1"

    waiting = after(volume, ReclaimNodes(NODES, {"n2": NODES["n2"]}))
    assert RECLAIM_NODE not in waiting.metadata.annotations
    assert 'node "n1"' in waiting.status.message
    assert after(waiting).metadata.annotations[RECLAIM_NODE] == "n1"


def test_a_volume_of_a_node_that_was_deleted_can_be_deleted() -> None:
    _, volume = bound_pair(LOCAL)
    going = replace(volume, metadata=replace(volume.metadata, deletion_timestamp=NOW))

    assert after(going, ReclaimNodes({}, {})).metadata.finalizers == ()
    assert DATA in after(going).metadata.finalizers, "while the node is there, it removes the data first"


def test_a_bound_volume_that_is_deleted_stays() -> None:
    claim, volume = bound_pair()
    going = replace(volume, metadata=replace(volume.metadata, deletion_timestamp=NOW))

    assert after(going, claim=claim).metadata.finalizers == (PROTECTION, DATA)


@pytest.mark.parametrize(
    ("node", "phase", "is_released"),
    [
        pytest.param("n1", "Running", False, id="runs"),
        pytest.param("n1", "Succeeded", True, id="has ended"),
        pytest.param("", "Pending", True, id="is on no node"),
    ],
)
def test_a_claim_stays_while_its_pod(node: str, phase: str, is_released: bool) -> None:
    claim, _ = bound_pair()
    pod = a_pod()
    spec = replace(pod.spec, node_name=node, volumes=with_claims(pod, "data"))
    pod = replace(pod, spec=spec, status=replace(pod.status, phase=phase))
    going = replace(claim, metadata=replace(claim.metadata, deletion_timestamp=NOW))

    assert plan_protection(claim, [pod]).actions == ()
    actions = plan_protection(going, [pod]).actions
    assert [each.object.metadata.finalizers for each in actions if isinstance(each, Update)] == (
        [()] if is_released else []
    )


def test_hand_made_disks_wait_for_a_pod() -> None:
    plan, waiting = planned(a_claim(of="disks"), a_volume(of="disks", node="n1"), of=HAND_MADE)

    assert plan.actions == ()
    assert waiting is not None
    assert waiting.reason == "WaitForFirstConsumer"

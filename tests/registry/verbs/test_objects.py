"""The verbs over every kind, on a real database: what each must do whatever the kind, and what only some kinds show."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from app.kinds.core.event import Event
from app.machinery.base import Kind, Object
from app.machinery.errors import ApiError
from app.registry import codec
from app.registry.verbs import deletion, objects
from app.registry.verbs.deletion import Demand
from app.registry.verbs.objects import Preconditions, Registry
from tests.registry.examples import JOBS, NAMESPACES, ORDINARY, PODS, a_job, a_pod, create, example, get, named, read

STORED = [kind for kind in ORDINARY if not kind.storage]
every_kind = pytest.mark.parametrize("kind", [pytest.param(kind, id=kind.resource) for kind in STORED])
with_status = pytest.mark.parametrize("kind", [pytest.param(k, id=k.resource) for k in STORED if k.has_status])
namespaced = pytest.mark.parametrize("kind", [pytest.param(k, id=k.resource) for k in STORED if k.namespaced])

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture
def registry(restored: Registry) -> Registry:
    return restored


async def made(registry: Registry, kind: Kind, **metadata: Any) -> Any:
    return await create(registry, kind, named(example(kind), **metadata))


async def update(registry: Registry, kind: Kind, obj: Object, **how: Any) -> Any:
    meta = obj.metadata
    answer = await objects.update(registry, kind, meta.namespace, meta.name, obj, **how)
    return read(kind, answer.body)


async def revision(registry: Registry) -> int:
    return await registry.store.revision()


async def refusal(doing: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        await doing
    return caught.value


def status_of(error: ApiError) -> tuple[int, str]:
    return error.code, error.reason


# Every kind.


@every_kind
async def test_what_is_created_can_be_read(registry: Registry, kind: Kind) -> None:
    obj = await made(registry, kind)

    assert obj == await get(registry, kind, obj.metadata.name, obj.metadata.namespace)
    assert (obj.api_version, obj.kind) == (kind.api_version, kind.name)
    assert obj.metadata.uid
    assert obj.metadata.creation_timestamp == registry.clock()
    assert obj.metadata.namespace == ((example(kind).metadata.namespace or "default") if kind.namespaced else "")


@every_kind
async def test_the_bytes_that_are_sent_are_those_that_are_stored(registry: Registry, kind: Kind) -> None:
    obj = example(kind)
    namespace = obj.metadata.namespace or "default" if kind.namespaced else ""
    answer = await objects.create(registry, kind, namespace, obj)
    head = await objects.find(registry, kind, namespace, obj.metadata.name)

    assert answer.body == head.wire
    assert msgspec.json.decode(answer.body)["metadata"]["resourceVersion"] == str(head.revision)


@every_kind
async def test_a_name_is_taken_once(registry: Registry, kind: Kind) -> None:
    obj = await made(registry, kind)

    error = await refusal(made(registry, kind))

    assert status_of(error) == (409, "AlreadyExists")
    assert error.message == f'{kind.resource} "{obj.metadata.name}" already exists'


@every_kind
async def test_the_server_makes_up_a_name(registry: Registry, kind: Kind) -> None:
    first, second = [await made(registry, kind, name="", generate_name="made-up-") for _ in range(2)]

    for obj in (first, second):
        assert obj.metadata.name.startswith("made-up-")
        assert len(obj.metadata.name) == len("made-up-") + 5
    assert first.metadata.name != second.metadata.name


@every_kind
async def test_a_name_is_required(registry: Registry, kind: Kind) -> None:
    error = await refusal(made(registry, kind, name=""))

    assert status_of(error) == (422, "Invalid")
    causes = error.details["causes"]
    assert {"metadata.name", "metadata.generateName"} & {cause["field"] for cause in causes}
    assert {cause["reason"] for cause in causes} >= {"FieldValueRequired"}


@every_kind
async def test_all_that_is_wrong_is_said_at_once(registry: Registry, kind: Kind) -> None:
    error = await refusal(made(registry, kind, name="not/a/name", labels={"bad key!": "x", "good": "bad value!"}))

    fields = [cause["field"] for cause in error.details["causes"]]
    assert status_of(error) == (422, "Invalid")
    assert "metadata.name" in fields
    assert fields.count("metadata.labels") >= 2
    assert all(f"{cause['field']}: {cause['message']}" in error.message for cause in error.details["causes"])


@every_kind
async def test_a_dry_run_stores_nothing(registry: Registry, kind: Kind) -> None:
    before = await revision(registry)
    obj = example(kind)
    namespace = obj.metadata.namespace or "default" if kind.namespaced else ""
    await objects.create(registry, kind, namespace, obj, dry_run=True)
    assert await revision(registry) == before
    assert await get(registry, kind, obj.metadata.name, namespace) is None

    there = await made(registry, kind)
    before = await revision(registry)
    shown = await update(registry, kind, named(there, labels={"a": "b"}), dry_run=True)
    await objects.delete(registry, kind, namespace, obj.metadata.name, Demand(), dry_run=True)
    assert shown.metadata.labels.items() >= {"a": "b"}.items()
    assert await revision(registry) == before
    assert await get(registry, kind, obj.metadata.name, namespace) == there


@every_kind
async def test_a_dry_run_is_refused_like_the_real_thing(registry: Registry, kind: Kind) -> None:
    there = await made(registry, kind)
    namespace = there.metadata.namespace

    taken = await refusal(objects.create(registry, kind, namespace, example(kind), dry_run=True))

    assert status_of(taken) == (409, "AlreadyExists")


@every_kind
async def test_an_update_is_checked_like_a_creation(registry: Registry, kind: Kind) -> None:
    old = await made(registry, kind)

    error = await refusal(update(registry, kind, named(old, labels={"bad key!": "x"}, finalizers=("nobody",))))

    assert status_of(error) == (422, "Invalid")
    assert {"metadata.labels", "metadata.finalizers[0]"} <= {cause["field"] for cause in error.details["causes"]}


@every_kind
async def test_labels_can_be_changed(registry: Registry, kind: Kind) -> None:
    old = await made(registry, kind)

    new = await update(registry, kind, named(old, labels={**old.metadata.labels, "a": "b"}))

    assert new.metadata.labels["a"] == "b"
    assert new.metadata.uid == old.metadata.uid
    assert int(new.metadata.resource_version) > int(old.metadata.resource_version)
    assert new == await get(registry, kind, new.metadata.name, new.metadata.namespace)


@every_kind
async def test_an_update_that_changes_nothing_keeps_the_revision(registry: Registry, kind: Kind) -> None:
    old = await made(registry, kind)
    before = await revision(registry)

    assert await update(registry, kind, old) == old
    assert await update(registry, kind, named(old, resource_version="")) == old
    assert await revision(registry) == before


@every_kind
async def test_of_two_updates_of_one_version_the_second_is_refused(registry: Registry, kind: Kind) -> None:
    old = await made(registry, kind)
    await update(registry, kind, named(old, annotations={"by": "first"}))

    error = await refusal(update(registry, kind, named(old, annotations={"by": "second"})))

    assert status_of(error) == (409, "Conflict")
    assert error.message == (
        f'Operation cannot be fulfilled on {kind.resource} "{old.metadata.name}": '
        "the object has been modified; please apply your changes to the latest version and try again"
    )
    now = await get(registry, kind, old.metadata.name, old.metadata.namespace)
    assert now.metadata.annotations == {"by": "first"}


@every_kind
async def test_an_update_without_a_version_wins(registry: Registry, kind: Kind) -> None:
    old = await made(registry, kind)
    await update(registry, kind, named(old, annotations={"by": "first"}))

    await update(registry, kind, named(old, annotations={"by": "second"}, resource_version=""))

    now = await get(registry, kind, old.metadata.name, old.metadata.namespace)
    assert now.metadata.annotations == {"by": "second"}


@every_kind
async def test_an_update_of_an_object_that_was_replaced_is_refused(registry: Registry, kind: Kind) -> None:
    obj = await made(registry, kind)

    error = await refusal(update(registry, kind, named(obj, uid="another", resource_version="")))

    assert status_of(error) == (409, "Conflict")
    assert f"Precondition failed: UID in precondition: another, UID in object meta: {obj.metadata.uid}" in error.message


@every_kind
async def test_an_edit_cannot_make_another_object_of_it(registry: Registry, kind: Kind) -> None:
    obj = await made(registry, kind)
    meta = obj.metadata

    edit = objects.edit(registry, kind, meta.namespace, meta.name, lambda old: named(old, uid="another"))
    error = await refusal(edit)

    assert status_of(error) == (422, "Invalid")
    assert 'metadata.uid: Invalid value: "another": field is immutable' in error.message


@every_kind
async def test_what_is_absent_cannot_be_updated_or_deleted(registry: Registry, kind: Kind) -> None:
    obj = named(example(kind), namespace="default" if kind.namespaced else "")

    errors = [
        await refusal(update(registry, kind, obj)),
        await refusal(objects.delete(registry, kind, obj.metadata.namespace, obj.metadata.name, Demand())),
    ]

    for error in errors:
        assert status_of(error) == (404, "NotFound")
        assert error.message == f'{kind.resource} "{obj.metadata.name}" not found'


@with_status
async def test_a_status_update_keeps_the_spec_and_an_update_keeps_the_status(registry: Registry, kind: Kind) -> None:
    """The example with another's spec: only its status may count."""
    old = await made(registry, kind)
    meddled = named(old, labels={**old.metadata.labels, "seen": "yes"}, finalizers=("example.com/x",))

    new = await update(registry, kind, meddled, status=True)
    assert getattr(new, "spec", None) == getattr(old, "spec", None)
    assert new.metadata.finalizers == old.metadata.finalizers

    empty = replace(new, status=kind.type().status)
    assert (await update(registry, kind, empty)).status == new.status


# Only some kinds.


def in_namespace(kind: Kind, namespace: str) -> Object:
    """The example there; an Event must be about something in its own namespace."""
    obj = named(example(kind), namespace=namespace)
    if isinstance(obj, Event):
        return replace(obj, involved_object=replace(obj.involved_object, namespace=namespace))
    return obj


@namespaced
async def test_the_namespace_must_exist(registry: Registry, kind: Kind) -> None:
    for dry_run in (False, True):
        obj = in_namespace(kind, "nowhere")
        error = await refusal(objects.create(registry, kind, "nowhere", obj, dry_run=dry_run))
        assert status_of(error) == (404, "NotFound")
        assert error.message == 'namespaces "nowhere" not found'


@namespaced
async def test_nothing_new_comes_into_a_namespace_that_is_going(registry: Registry, kind: Kind) -> None:
    await create(registry, NAMESPACES, named(example(NAMESPACES), name="going", finalizers=("example.com/x",)))
    await objects.delete(registry, NAMESPACES, "", "going", Demand())
    before = await revision(registry)

    for dry_run in (False, True):
        obj = in_namespace(kind, "going")
        error = await refusal(objects.create(registry, kind, "going", obj, dry_run=dry_run))
        assert status_of(error) == (403, "Forbidden")
        assert "unable to create new content in namespace going because it is being terminated" in error.message
        assert error.details["causes"][0]["reason"] == "NamespaceTerminating"
    assert await get(registry, kind, example(kind).metadata.name, "going") is None
    assert await revision(registry) - before <= 2  # a refused set leaves a gap, nothing else


async def test_the_namespace_of_the_object_must_be_that_of_the_request(registry: Registry) -> None:
    error = await refusal(objects.create(registry, PODS, "default", a_pod(metadata={"namespace": "kube-system"})))

    assert status_of(error) == (400, "BadRequest")
    assert error.message.startswith("the namespace of the provided object does not match the namespace sent on the")


async def test_a_new_object_has_no_version_yet(registry: Registry) -> None:
    error = await refusal(create(registry, PODS, a_pod(metadata={"resource_version": "7"})))

    assert status_of(error) == (400, "BadRequest")
    assert error.message == "resourceVersion should not be set on objects to be created"


async def test_what_only_the_server_says_is_not_taken_from_the_client(registry: Registry) -> None:
    long_ago = registry.now().replace(year=1999)
    sent = named(a_pod(), uid="mine", creation_timestamp=long_ago, deletion_timestamp=long_ago, generation=7)

    pod = await create(registry, PODS, replace(sent, status=replace(sent.status, phase="Succeeded")))

    assert pod.metadata.uid != "mine"
    assert pod.metadata.creation_timestamp == registry.now()
    assert pod.metadata.deletion_timestamp is None
    assert pod.metadata.generation == 1
    assert pod.status.phase == "Pending"


async def test_the_generation_rises_with_the_spec_alone(registry: Registry) -> None:
    job = await create(registry, JOBS, a_job())
    labelled = await update(registry, JOBS, named(job, labels={"a": "b"}))
    scaled = await update(registry, JOBS, replace(labelled, spec=replace(labelled.spec, parallelism=5)))

    generations = [each.metadata.generation for each in (job, labelled, scaled)]
    assert generations == [1, 1, 2]


async def test_the_selector_index_is_stored(registry: Registry) -> None:
    pod = await create(registry, PODS, a_pod("p", {"labels": {"app": "x"}}, node_name="n1"))

    head = await registry.store.get(codec.key_of(PODS, "default", pod.metadata.name))

    assert head.selector_index.labels == {"app": "x"}
    assert head.selector_index.fields.items() >= {"spec.nodeName": "n1", "status.phase": "Pending"}.items()


async def test_an_edit_without_a_version_is_tried_again_on_the_newest(registry: Registry) -> None:
    await create(registry, PODS, a_pod())
    tries: list[str] = []

    def change(pod: Any) -> Any:
        tries.append(pod.metadata.resource_version)
        return named(pod, annotations={**pod.metadata.annotations, "a": str(len(tries))}, resource_version="")

    old = await get(registry, PODS, "p")
    head = await registry.store.get(codec.key_of(PODS, "default", "p"))
    stale = replace(old, metadata=replace(old.metadata, annotations={"b": "1"}))
    get_now = registry.store.get

    async def get_stale(_: Any) -> Any:  # the first read is overtaken by another's write
        registry.store.get = get_now
        await update(registry, PODS, stale)
        return head

    registry.store.get = get_stale
    await objects.edit(registry, PODS, "default", "p", change)

    assert len(tries) == 2
    assert (await get(registry, PODS, "p")).metadata.annotations == {"a": "2", "b": "1"}


async def test_deletion_preconditions(registry: Registry) -> None:
    pod = await create(registry, PODS, a_pod())

    for wanted in (Preconditions(uid="another"), Preconditions(resource_version="1")):
        error = await refusal(objects.delete(registry, PODS, "default", "p", Demand(), wanted))
        assert status_of(error) == (409, "Conflict")
        assert "Precondition failed:" in error.message
    meta = pod.metadata
    right = Preconditions(uid=meta.uid, resource_version=meta.resource_version)
    deleted = await objects.delete(registry, PODS, "default", "p", Demand(), right)

    assert deleted.is_over
    assert await get(registry, PODS, "p") is None
    assert deletion.is_over(PODS, pod) is False

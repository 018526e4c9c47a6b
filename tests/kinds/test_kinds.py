"""What holds for every kind, so that the layers above can rely on it."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from msgspec import inspect
from msgspec.structs import replace

from app.kinds import KINDS, by_name, by_resource, by_version
from app.kinds.core.configmap import KIND as CONFIG_MAPS
from app.kinds.core.configmap import ConfigMap
from app.kinds.core.event import KIND as EVENTS
from app.kinds.core.event_v1 import KIND as NEW_EVENTS
from app.kinds.core.lease import KIND as LEASES
from app.kinds.core.limitrange import LimitRangeSpec
from app.kinds.core.namespace import KIND as NAMESPACES
from app.kinds.core.node import KIND as NODES
from app.kinds.core.node import NodeAddress, NodeCondition
from app.kinds.core.secret import KIND as SECRETS
from app.kinds.pod.pod_schema import PodIP
from app.kinds.pod.probe import HTTPHeader, SleepAction
from app.kinds.pod.security import Sysctl
from app.machinery.base import Condition, Kind, Struct, wire_name
from app.machinery.decoding.decode import decode

NOW = datetime(2025, 1, 2, 3, 5, 5, tzinfo=UTC)

every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.resource)


def read(kind: Kind[Any], text: str) -> Any:
    decoded = decode(text.encode(), kind.type, api_version=kind.api_version, content_type="yaml", validation="Strict")
    assert decoded.warnings == []
    return decoded.object


def created(kind: Kind[Any]) -> Any:
    """The example as the registry would create it."""
    obj = read(kind, kind.example)
    home = obj.metadata.namespace or ("default" if kind.namespaced else "")
    metadata = replace(obj.metadata, namespace=home, uid="0e5c2e1c-5f4b-4c40-8d6a-1f2e3d4c5b6a", creation_timestamp=NOW)
    return kind.on_create(kind.prepare(replace(obj, metadata=metadata)), NOW)


def test_the_kinds_are_found_by_path_and_by_name() -> None:
    assert {kind.name for kind in KINDS} >= {"Pod", "Job", "Node", "Namespace", "Event", "Lease", "Secret"}
    for kind in KINDS:
        assert by_resource(kind.group, kind.version, kind.plural) is kind
        assert by_name(kind.group, kind.name) is (kind.storage if _has_twin(kind) else kind)
        assert by_version(kind.api_version, kind.name) is (kind.storage or kind)
    assert by_resource("batch", "v7", "jobs") is by_name("", "Job") is None


def _has_twin(kind: Kind[Any]) -> bool:
    """Return whether the stored version of a kind has the same name."""
    return kind.storage is not None and kind.storage.group == kind.group


@every_kind
def test_the_example_names_itself(kind: Kind[Any]) -> None:
    example = msgspec.yaml.decode(kind.example)

    assert (example["apiVersion"], example["kind"]) == (kind.api_version, kind.name)


@every_kind
def test_preparing_twice_is_preparing_once(kind: Kind[Any]) -> None:
    once = kind.prepare(read(kind, kind.example))

    assert kind.prepare(once) == once
    assert kind.prepare(kind.type()) == kind.prepare(kind.prepare(kind.type()))


@every_kind
def test_the_example_is_valid(kind: Kind[Any]) -> None:
    obj = created(kind)

    assert kind.validate(obj) == kind.validate_update(obj, obj) == kind.validate_status(obj, obj) == []


@every_kind
def test_an_update_without_a_change_changes_nothing(kind: Kind[Any]) -> None:
    obj = created(kind)

    assert kind.on_update(obj, obj) == obj


@every_kind
def test_an_empty_object_is_judged_and_not_crashed_on(kind: Kind[Any]) -> None:
    obj = kind.on_create(kind.prepare(kind.type()), NOW)

    assert isinstance(kind.validate(obj), list)
    assert len(kind.row(obj, NOW)) == len(kind.columns)
    assert isinstance(kind.grace(obj), int)


@every_kind
def test_a_row_has_a_cell_for_each_column(kind: Kind[Any]) -> None:
    obj = created(kind)
    row = kind.row(obj, NOW)

    assert len(row) == len(kind.columns) > 0
    assert all(isinstance(cell, str | int) for cell in row)
    named = [cell for cell, column in zip(row, kind.columns, strict=True) if column.format == "name"]
    assert named == [obj.metadata.name]


@every_kind
def test_each_field_selector_gives_a_text(kind: Kind[Any]) -> None:
    for obj in (created(kind), kind.type()):
        assert all(isinstance(text(obj), str) for text in kind.fields.values())


@every_kind
def test_an_object_survives_the_wire(kind: Kind[Any]) -> None:
    obj = created(kind)

    assert decode(msgspec.json.encode(obj), kind.type, validation="Strict").object == obj


@every_kind
def test_a_second_version_of_a_kind_loses_nothing(kind: Kind[Any]) -> None:
    if not kind.storage or not kind.inward or not kind.outward:
        assert kind.inward is kind.outward is None
        return
    obj = created(kind)
    stored = kind.inward(obj)

    assert kind.outward(stored) == obj
    home = kind.storage
    assert by_name(home.group, stored.kind) is home
    assert stored.api_version == home.api_version
    assert home.fields.keys() >= kind.fields.keys()
    assert all(home.fields[name](stored) == text(obj) for name, text in kind.fields.items())


def structs(type_: Any, seen: dict[type, inspect.StructType]) -> dict[type, inspect.StructType]:
    """Every struct that a kind is made of."""
    if isinstance(type_, inspect.StructType) and type_.cls not in seen:
        seen[type_.cls] = type_
        for field in type_.fields:
            structs(field.type, seen)
    inner = (getattr(type_, name, None) for name in ("type", "item_type", "value_type"))
    for each in (*inner, *getattr(type_, "types", ())):
        if each is not None:
            structs(each, seen)
    return seen


ALL_STRUCTS: dict[type, inspect.StructType] = {}
for _kind in KINDS:
    structs(inspect.type_info(_kind.type), ALL_STRUCTS)

every_struct = pytest.mark.parametrize(
    "struct", ALL_STRUCTS.values(), ids=lambda struct: f"{struct.cls.__module__}.{struct.cls.__name__}"
)


def metadata(struct: inspect.StructType) -> Iterator[tuple[inspect.Field, dict[str, Any], str]]:
    for field in struct.fields:
        assert isinstance(field.type, inspect.Metadata), field.name
        yield field, field.type.extra or {}, (field.type.extra_json_schema or {}).get("description", "")


@every_struct
def test_each_struct_is_described(struct: inspect.StructType) -> None:
    assert issubclass(struct.cls, Struct)
    assert struct.cls.__doc__
    assert "TODO" not in struct.cls.__doc__


@every_struct
def test_each_field_is_described(struct: inspect.StructType) -> None:
    assert [field.name for field, _, description in metadata(struct) if not description or "TODO" in description] == []


@every_struct
def test_protobuf_numbers_are_unique(struct: inspect.StructType) -> None:
    numbers = [(extra.get("via", ()), extra["pb"]) for _, extra, _ in metadata(struct)]
    real = [number for number in numbers if number != ((), 0)]  # apiVersion and kind travel outside

    assert len(real) == len(set(real))


@every_struct
def test_merge_keys_are_fields_of_what_they_tell_apart(struct: inspect.StructType) -> None:
    for field, extra, _ in metadata(struct):
        item = getattr(getattr(field.type, "type", None), "item_type", None)
        if "patch_key" in extra and isinstance(item, inspect.StructType):
            names = {each.encode_name for each in item.fields}
            assert wire_name(extra["patch_key"]) in names, field.name


def test_a_namespace_starts_active_and_selectable_by_its_name() -> None:
    namespace = created(NAMESPACES)

    assert namespace.spec.finalizers == ("kubernetes",)
    assert namespace.metadata.labels["kubernetes.io/metadata.name"] == "research"
    assert NAMESPACES.row(namespace, NOW) == ["research", "Active", "0s"]


def test_a_node_can_have_what_the_machine_has() -> None:
    assert created(NODES).status.allocatable == {"cpu": "8", "memory": "32Gi", "pods": 110}


def test_an_update_of_a_node_keeps_its_status() -> None:
    node = created(NODES)
    changed = NODES.on_update(NODES.type(metadata=node.metadata), node)

    assert changed.status == node.status


@pytest.mark.parametrize(
    ("change", "state"),
    [
        pytest.param("", "Ready", id="ready"),
        pytest.param('status: "Unknown"', "NotReady", id="not heard of"),
        pytest.param("type: DiskPressure", "Unknown", id="without a word on being ready"),
    ],
)
def test_a_node_is(change: str, state: str) -> None:
    condition = {"type": "Ready", "status": "True"} | (msgspec.yaml.decode(change) or {})
    node = msgspec.convert({"spec": {"unschedulable": True}, "status": {"conditions": [condition]}}, NODES.type)

    assert NODES.row(node, NOW)[1] == f"{state},SchedulingDisabled"


def test_a_node_shows_its_roles_and_addresses() -> None:
    row = NODES.row(created(NODES), NOW)

    assert row[2] == "worker"
    assert row[5:7] == ["10.0.0.7", "<none>"]


@pytest.mark.parametrize(
    ("taint", "field", "message"),
    [
        pytest.param({"key": "a", "effect": "NoSchedule"}, "", "", id="complete"),
        pytest.param({"key": "a"}, "spec.taints[0].effect", "Required value", id="without effect"),
        pytest.param(
            {"key": "a", "effect": "Never"},
            "spec.taints[0].effect",
            'Unsupported value: "Never": supported values: "NoSchedule", "PreferNoSchedule", "NoExecute"',
            id="with an unknown effect",
        ),
        pytest.param(
            {"key": "a b", "effect": "NoExecute"}, "spec.taints[0].key", 'Invalid value: "a b"', id="with a bad key"
        ),
        pytest.param(
            {"key": "a", "value": "/", "effect": "NoExecute"},
            "spec.taints[0].value",
            'Invalid value: "/"',
            id="with a bad value",
        ),
    ],
)
def test_a_taint(taint: dict, field: str, message: str) -> None:
    node = msgspec.convert({"spec": {"taints": [taint]}}, NODES.type)

    causes = NODES.validate(node)

    assert [cause.field for cause in causes] == ([field] if field else [])
    assert all(cause.message.startswith(message) for cause in causes)


def test_taints_are_unique_by_key_and_effect() -> None:
    taint = {"key": "a", "effect": "NoSchedule"}
    node = msgspec.convert({"spec": {"taints": [taint, taint | {"effect": "NoExecute"}, taint]}}, NODES.type)

    (cause,) = NODES.validate(node)

    assert cause.field == "spec.taints[2]"
    assert cause.message == (
        'Duplicate value: {"key":"a","effect":"NoSchedule"}: taints must be unique by key and effect pair'
    )


@pytest.mark.parametrize("amount", ["-1", "many", "1.5.5"])
def test_a_node_has_amounts_that_can_be_counted(amount: str) -> None:
    node = msgspec.convert({"status": {"capacity": {"cpu": amount}}}, NODES.type)

    assert [cause.field for cause in NODES.validate(node)] == ["status.capacity.cpu"]


def test_texts_of_a_secret_go_into_its_data() -> None:
    secret = created(SECRETS)

    assert secret.data == {"username": b"science", "password": b"not a good one"}
    assert secret.string_data == {}
    assert SECRETS.prepare(SECRETS.type()).type == "Opaque"


@pytest.mark.parametrize(
    ("type_", "fields"),
    [
        pytest.param("Opaque", [], id="anything goes"),
        pytest.param("example.com/mine", [], id="a type of one's own"),
        pytest.param("kubernetes.io/basic-auth", ["data[username]", "data[password]"], id="basic-auth"),
        pytest.param("kubernetes.io/tls", ["data[tls.crt]", "data[tls.key]"], id="tls"),
        pytest.param("kubernetes.io/dockerconfigjson", ["data[.dockerconfigjson]"], id="dockerconfigjson"),
        pytest.param(
            "kubernetes.io/service-account-token",
            ["metadata.annotations[kubernetes.io/service-account.name]"],
            id="service-account-token",
        ),
    ],
)
def test_a_secret_must_have_what_its_type_promises(type_: str, fields: list[str]) -> None:
    assert [cause.field for cause in SECRETS.validate(SECRETS.type(type=type_))] == fields


@pytest.mark.parametrize(("text", "count"), [(b'{"auths": {}}', 0), (b"[]", 1), (b"\xff", 1), (b"[" * 9_999, 1)])
def test_a_secret_for_a_registry_is_json(text: bytes, count: int) -> None:
    secret = SECRETS.type(type="kubernetes.io/dockercfg", data={".dockercfg": text})

    assert len(SECRETS.validate(secret)) == count


@pytest.mark.parametrize("kind", [CONFIG_MAPS, SECRETS], ids=lambda kind: kind.plural)
def test_what_is_immutable_stays(kind: Kind[Any]) -> None:
    old = replace(created(kind), immutable=True)
    relabelled = replace(old, metadata=replace(old.metadata, labels={"a": "b"}))
    changed = replace(old, data={}, immutable=None)

    assert kind.validate_update(relabelled, old) == []
    assert [(cause.field, cause.message) for cause in kind.validate_update(changed, old)] == [
        (field, "Forbidden: field is immutable when `immutable` is set") for field in ("immutable", "data")
    ]


@pytest.mark.parametrize(
    ("config_map", "fields"),
    [
        pytest.param(ConfigMap(data={"a": "x" * 2**20}), [], id="of a mebibyte"),
        pytest.param(ConfigMap(data={"a": "x" * 2**20, "b": "x"}), ["[]"], id="of more than a mebibyte"),
        pytest.param(ConfigMap(data={"a": "é" * 2**19, "b": "x"}), ["[]"], id="counted in bytes"),
        pytest.param(ConfigMap(data={"a/b": ""}), ["data[a/b]"], id="with a key that is no file name"),
        pytest.param(ConfigMap(data={"a": ""}, binary_data={"a": b""}), ["data[a]"], id="with a key twice"),
    ],
)
def test_a_config_map(config_map: ConfigMap, fields: list[str]) -> None:
    assert [cause.field for cause in CONFIG_MAPS.validate(config_map)] == fields


def test_a_lease_has_sensible_numbers() -> None:
    lease = msgspec.convert({"spec": {"leaseDurationSeconds": 0, "leaseTransitions": -1}}, LEASES.type)

    assert [f"{cause.field}: {cause.message}" for cause in LEASES.validate(lease)] == [
        "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0",
        "spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0",
    ]


def test_an_event_is_shown_as_kubectl_shows_it() -> None:
    row = EVENTS.row(created(EVENTS), NOW)

    assert row[:7] == ["60s", "Normal", "SuccessfulCreate", "job/pi", "", "job-controller", "Created pod: pi-x7k2p"]
    assert row[7:] == ["60s", 1, "pi.17c4d5e6f7a8b9c0"]
    assert NEW_EVENTS.row(created(NEW_EVENTS), NOW)[:4] == ["59s", "Normal", "Scheduled", "pod/pi-x7k2p"]


def test_an_event_that_goes_on_is_shown_by_its_series() -> None:
    series = {"count": 7, "lastObservedTime": "2025-01-02T03:05:00.000000Z"}
    event = msgspec.convert({"series": series, "eventTime": "2025-01-02T03:04:05.000000Z"}, NEW_EVENTS.type)

    row = NEW_EVENTS.row(event, NOW)

    assert (row[0], row[7], row[8]) == ("5s", "60s", 7)


@pytest.mark.parametrize(
    ("part", "fields"),
    [
        pytest.param(Condition(), {"type", "status"}, id="a condition"),
        pytest.param(NodeCondition(), {"type", "status"}, id="a condition of a node"),
        pytest.param(NodeAddress(), {"type", "address"}, id="an address"),
        pytest.param(PodIP(), {"ip"}, id="an IP"),
        pytest.param(HTTPHeader(), {"value"}, id="a header without a value"),
        pytest.param(Sysctl(), {"value"}, id="a kernel parameter without a value"),
        pytest.param(SleepAction(), {"seconds"}, id="no sleep"),
        pytest.param(LimitRangeSpec(), {"limits"}, id="a limit range without limits"),
    ],
)
def test_what_typed_clients_insist_on_is_there_even_if_empty(part: Struct, fields: set[str]) -> None:
    assert set(msgspec.json.decode(msgspec.json.encode(part))) == fields

"""Structs are what Kubernetes publishes: modules are as generated, and the table says of every difference why."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from app.kinds import KINDS
from app.machinery.apply.topology import ATOMIC
from app.machinery.shape import Shape, shape_of

SCRIPTS = Path(__file__).parents[2] / "scripts"


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, SCRIPTS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


generate_kinds = script("generate_kinds")
kubernetes_facts = script("kubernetes_facts")
TABLE = yaml.safe_load(generate_kinds.TABLE.read_text())
FACTS = json.loads(generate_kinds.FACTS.read_text())
BY_HAND = {
    "app.kinds.scheduling.localqueue",  # a kind of ours
    "app.kinds.scheduling.podgroup_v1alpha3",  # generated structs under a second version
    "app.kinds.scheduling.workload_v1alpha3",
}


def test_the_committed_modules_are_what_is_generated():
    changed = [str(path) for path, source in generate_kinds.generated() if path.read_text() != source]

    assert changed == [], "edit scripts/kinds.yaml, not these, and run `make generate`"


def test_the_facts_are_of_the_release_that_the_table_names():
    assert FACTS["sources"] == TABLE["_sources"], "run scripts/kubernetes_facts.py"


def reached(shape: Shape, found: set[type]) -> set[type]:
    """Every struct that a shape is made of."""
    if shape.item is not None:
        return reached(shape.item, found)
    if shape.struct is not None and shape.struct not in found:
        found.add(shape.struct)
        for field in shape.fields.values():
            reached(field.shape, found)
    return found


def test_every_kind_is_made_of_generated_structs():
    structs = {each for kind in KINDS for each in reached(shape_of(kind.type), set())}

    assert {each.__module__ for each in structs} - TABLE.keys() == BY_HAND


def test_structs_are_merged_whole_where_kubernetes_merges_them_whole():
    assert {name.rpartition(".")[2] for name in FACTS["atomic"]} == ATOMIC


POINT = {
    "x": {"number": 1, "type": "int32", "required": True},
    "y": {"number": 2, "type": "[]string", "list_type": "set", "omits": True},
}


def source(rows: dict, facts: dict = POINT) -> str:
    table = {"app.kinds.point": {"_doc": "Points.", "_package": "core/v1", "Point": {"_doc": "A point.", **rows}}}
    made = generate_kinds.Table(table, {"core/v1.Point": facts})
    made.check()
    text: str = made.source("app.kinds.point")
    return text


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        pytest.param({"x": "Place."}, "core/v1.Point has a field y (2, []string): describe it", id="a new field"),
        pytest.param(
            {"x": "Place.", "y": "Names.", "z": "Height."}, "core/v1.Point has no field z", id="a field that is gone"
        ),
        pytest.param(
            {"x": "Place.", "y": {"doc": "Names.", "list_type": None}},
            "give the reason",
            id="an unexplained difference",
        ),
    ],
)
def test_what_does_not_fit_the_facts_is_refused(rows: dict, text: str):
    with pytest.raises(generate_kinds.TableError) as refused:
        source(rows)

    assert text in str(refused.value)


def test_a_field_is_declared_with_its_facts():
    text = source({"x": "Place.", "y": "Names."})

    assert (
        '    x: Annotated[Int32, at(1, "Place.", required=True)] = msgspec.field(default_factory=lambda: 0)\n' in text
    )
    assert "    y: Annotated[tuple[str, ...], at(2, \"Names.\", list_type='set')] = ()\n" in text


def test_a_field_may_differ_for_a_reason():
    assert "list_type" not in source({"x": "Place.", "y": {"doc": "Names.", "list_type": None, "why": "a test"}})
    assert "y: " not in source({"x": "Place.", "_left_out": {"y": "a test"}})


@pytest.mark.parametrize(
    ("name", "python"),
    [("podIPs", "pod_ips"), ("hostPID", "host_pid"), ("fieldsV1", "fields_v1"), ("downwardAPI", "downward_api")],
)
def test_names_in_python(name: str, python: str):
    assert generate_kinds.snake(name) == python


GO = """package v1

import "k8s.io/apimachinery/pkg/api/resource"

// +enum
type Color string

const (
\tRed  Color = "Red"
\tBlue Color = "Blue"
)

type Amounts map[string]resource.Quantity

// +structType=atomic
type Named struct {
\t// A sentence that no fact comes from.
\t// +optional
\t// +default=""
\tName string `json:"name,omitempty" protobuf:"bytes,1,opt,name=name"`
}

type Car struct {
\tNamed `json:",inline" protobuf:"bytes,1,opt,name=named"`
\t// +listType=map
\t// +listMapKey=name
\tParts []Named `json:"parts,omitempty" patchStrategy:"merge" patchMergeKey:"name" protobuf:"bytes,2,rep,name=parts"`

\tColor *Color `json:"color,omitempty" protobuf:"bytes,3,opt,name=color"`
\tWeights Amounts `json:"weights" protobuf:"bytes,4,rep,name=weights"`
}
"""


def test_facts_of_go_types(tmp_path: Path):
    (tmp_path / "types.go").write_text(GO)
    release = kubernetes_facts.Release({})
    release._packages["core/v1"] = kubernetes_facts.Package("core/v1", tmp_path)
    parts = {"patch": "merge", "patch_key": "name", "list_type": "map", "list_keys": ["name"]}

    assert release.is_atomic("core/v1.Named")
    assert release.message("core/v1.Car") == {
        "name": {"number": 1, "via": [1], "type": "string", "omits": True, "default": ""},
        "parts": {"number": 2, "type": "[]core/v1.Named", "omits": True, **parts},
        "color": {"number": 3, "type": "string", "pointer": True, "omits": True, "enum": ["Blue", "Red"]},
        "weights": {"number": 4, "type": "map:Quantity", "required": True},
    }

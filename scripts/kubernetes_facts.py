"""Facts of Kubernetes' published Go types: names, numbers, types and marks of fields, and no sentences.

    .venv/bin/python scripts/kubernetes_facts.py

Needs Go and the network; run it after a change of `_sources` in `kinds.yaml`, or after another message is named there. It
writes `kubernetes.json`: every field of the messages that the table names, also those that Jobplane leaves out.
"""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from generate_kinds import FACTS, TABLE, messages_of

_PLAIN = {"string", "bool", "int32", "int64", "float64"}
_KNOWN = {
    "[]byte": "bytes",
    "metav1.Time": "Time",
    "metav1.MicroTime": "MicroTime",
    "resource.Quantity": "Quantity",
    "intstr.IntOrString": "IntOrString",
    "types.UID": "string",
    "runtime.RawExtension": "Any",
}
_TYPE = re.compile(r"((?:^//.*\n)*)^type (\w+) =? ?(struct \{\n(?:.*\n)*?\}|struct\{\}|[\w.*\[\]]+)", re.MULTILINE)
_FIELD = re.compile(r"^\t(?:\w+\s+)?([\w.*\[\]]+)\s+`([^`]*)`")
_TAG = re.compile(r'(\w+):"([^"]*)"')
_MARK = re.compile(r"^\s*// ?\+(\w+)(?:=(.*))?$")
_VALUE = re.compile(r'^\s+\w+\s+(\w+)\s+=\s+"([^"]*)"', re.MULTILINE)
_IMPORT = re.compile(r'^\s*(\w+) "k8s\.io/(?:api|apimachinery/pkg/apis)/(\w+/\w+)"', re.MULTILINE)

Fact = dict[str, Any]


class Package:
    """The types of one Go package, such as `core/v1`, as they stand in its sources."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        text = "\n".join(each.read_text() for each in sorted(folder.glob("*.go")) if "_test" not in each.name)
        self.types = {name: body for _, name, body in _TYPE.findall(text)}
        self.comments = {name: comment for comment, name, _ in _TYPE.findall(text)}
        self.imports = dict(_IMPORT.findall(text))
        self._values = _VALUE.findall(text)

    def fields(self, type_: str) -> Iterator[tuple[str, dict[str, str], dict[str, str]]]:
        """Type, tags and marks of each field of a struct."""
        marks: dict[str, str] = {}
        for line in self.types[type_].splitlines()[1:]:
            if mark := _MARK.match(line):
                marks[mark[1]] = f"{marks[mark[1]]},{mark[2]}" if mark[1] in marks else mark[2] or ""
            elif field := _FIELD.match(line):
                yield field[1], dict(_TAG.findall(field[2])), marks
            if not line.strip().startswith("//"):
                marks = {}

    def enum(self, type_: str) -> list[str]:
        """What an enumeration may be; nothing of any other type."""
        is_enum = re.search(r"^// ?\+enum$", self.comments[type_], re.MULTILINE)
        return sorted({value for name, value in self._values if name == type_}) if is_enum else []


class Release:
    """All packages of the modules that the table names."""

    def __init__(self, sources: dict[str, str]) -> None:
        self._folders = {prefix: _download(module) for prefix, module in sources.items()}
        self._packages: dict[str, Package] = {}

    def package(self, name: str) -> Package:
        if name not in self._packages:
            prefix = max((each for each in self._folders if name.startswith(each)), key=len)
            self._packages[name] = Package(name, self._folders[prefix] / name)
        return self._packages[name]

    def message(self, name: str) -> dict[str, Fact]:
        """The facts of each field of `core/v1.PodSpec`, by its name in JSON."""
        package, type_ = name.rsplit(".", 1)
        return dict(self._fields(self.package(package), type_, []))

    def is_atomic(self, name: str) -> bool:
        package, type_ = name.rsplit(".", 1)
        return "+structType=atomic" in self.package(package).comments[type_]

    def _fields(self, package: Package, type_: str, via: list[int]) -> Iterator[tuple[str, Fact]]:
        for go_type, tags, marks in package.fields(type_):
            number = int(tags["protobuf"].split(",")[1]) if "protobuf" in tags else 0
            name, *options = tags.get("json", "").split(",")
            if name:
                place = {"number": number} | ({"via": via} if via else {})
                yield name, place | self._fact(package, go_type, tags, marks, {"omitempty", "omitzero"} & {*options})
            elif go_type.endswith("TypeMeta"):  # travels outside of the message
                yield from ((each, {"number": 0, "type": "string", "omits": True}) for each in ("apiVersion", "kind"))
            else:  # embedded: its fields are the struct's own in JSON
                home, _, inner = self._resolve(package, go_type)[0].rpartition(".")
                yield from self._fields(self.package(home), inner, [*via, number])

    def _fact(
        self, package: Package, go_type: str, tags: dict[str, str], marks: dict[str, str], omits: set[str]
    ) -> Fact:
        type_, enum = self._resolve(package, go_type)
        default = marks.get("default", "null")
        found = {
            "pointer": go_type.startswith("*"),
            "omits": bool(omits),
            "required": "required" in marks or not (omits or "optional" in marks),
            "enum": enum,
            "patch": tags.get("patchStrategy"),
            "patch_key": tags.get("patchMergeKey"),
            "list_type": marks.get("listType"),
            "list_keys": [each for each in marks.get("listMapKey", "").split(",") if each],
            "map_type": marks.get("mapType") or marks.get("structType"),
        }
        known = {"default": json.loads(default)} if default != "null" and not default.startswith("ref(") else {}
        return {"type": type_} | {name: value for name, value in found.items() if value} | known

    def _resolve(self, package: Package, go_type: str) -> tuple[str, list[str]]:
        """A type without pointers and aliases, and the values of an enumeration: `[]core/v1.Pod`, `map:string`."""
        known = _KNOWN.get(go_type) or (_KNOWN.get(f"metav1.{go_type}") if package.name == "meta/v1" else None)
        if known or go_type in _PLAIN:
            return known or go_type, []
        if go_type.startswith("*"):
            return self._resolve(package, go_type[1:])
        if go_type.startswith("[]"):
            element, enum = self._resolve(package, go_type[2:])
            return f"[]{element}", enum
        if go_type.startswith("map["):
            return f"map:{self._resolve(package, go_type.partition(']')[2])[0]}", []
        alias, _, type_ = go_type.rpartition(".")
        home = self.package(package.imports[alias]) if alias else package
        if home is not package:
            return self._resolve(home, type_)
        if package.types[type_].startswith("struct"):
            return f"{package.name}.{type_}", []
        return self._resolve(package, package.types[type_])[0], package.enum(type_)


def _download(source: str) -> Path:
    """`k8s.io/metrics@v0.37.2/pkg/apis` is a folder of a module, which Go fetches and verifies."""
    path, _, rest = source.partition("@")
    version, _, folder = rest.partition("/")
    told = subprocess.run(["go", "mod", "download", "-json", f"{path}@{version}"], check=True, capture_output=True)
    return Path(json.loads(told.stdout)["Dir"]) / folder


def as_text(sources: dict[str, str], atomic: list[str], messages: dict[str, dict[str, Fact]]) -> str:
    """JSON with one line a field, so that what a release changes shows. `atomic`: messages that are merged whole."""
    parts = []
    for message, fields in messages.items():
        lines = ",\n".join(f"    {json.dumps(name)}: {json.dumps(fact)}" for name, fact in fields.items())
        parts.append(f"  {json.dumps(message)}: {{\n{lines}\n  }}" if lines else f"  {json.dumps(message)}: {{}}")
    body = ",\n".join(parts)
    return (
        f'{{\n"sources": {json.dumps(sources, indent=2)},\n"atomic": {json.dumps(atomic, indent=2)},\n'
        f'"messages": {{\n{body}\n}}\n}}\n'
    )


def main() -> None:
    table = yaml.safe_load(TABLE.read_text())
    sources = table.pop("_sources")
    release = Release(sources)
    names = sorted({name for module in table.values() for names in messages_of(module).values() for name in names})
    atomic = [name for name in names if release.is_atomic(name)]
    FACTS.write_text(as_text(sources, atomic, {name: release.message(name) for name in names}))


if __name__ == "__main__":
    main()

"""What one fuzzer knows: its namespace, the kinds, and the objects of its own that the server has accepted."""

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import yaml

from app.kinds import KINDS
from app.machinery.base import Kind
from app.machinery.shape import Shape, shape_of
from tests.fuzz.documents import Stock

MOST = 5  # objects of a kind that are kept; the oldest go
# Of these there may be few: they refuse what others would be tried with.
FEW = {"resourcequotas": 1, "limitranges": 1, "namespaces": 2}


def shape(kind: Kind) -> Shape:
    type_: type = kind.type
    return shape_of(type_)


def _corpus() -> Iterator[tuple[Kind, dict[str, Any]]]:
    """Each kind's example, and objects that say more."""
    yield from ((kind, msgspec.yaml.decode(kind.example)) for kind in KINDS)
    for document in yaml.safe_load(Path(__file__).with_name("corpus.yaml").read_text()):
        yield (
            next(kind for kind in KINDS if (kind.api_version, kind.name) == (document["apiVersion"], document["kind"])),
            document,
        )


_CORPUS = tuple(_corpus())
_VALID = {(kind.api_version, kind.name): [document for other, document in _CORPUS if other is kind] for kind in KINDS}


@dataclass
class World:
    """Everything random comes from one generator, so a seed and a number stand for the whole campaign."""

    seed: int
    number: int
    count: int = 0

    def __post_init__(self) -> None:
        self.rng = Random(f"{self.seed}/{self.number}")
        self.stock = Stock(self.rng)
        for kind, document in _CORPUS:
            self.stock.learn(document, shape(kind))
        self._objects: dict[tuple[str, str], list[dict[str, Any]]] = {}
        self.namespace = f"fuzz-{self.seed}-{self.number}"

    def kind(self) -> Kind:
        return self.rng.choice(KINDS)

    def collection(self, kind: Kind) -> str:
        root = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
        return f"{root}/namespaces/{self.namespace}/{kind.plural}" if kind.namespaced else f"{root}/{kind.plural}"

    def manifest(self, kind: Kind) -> dict[str, Any]:
        """A valid one, with a name that nobody else has."""
        self.count += 1
        made: dict[str, Any] = copy.deepcopy(self.rng.choice(_VALID[kind.api_version, kind.name]))
        made["metadata"].pop("namespace", None)
        made["metadata"]["name"] = f"{self.namespace}-{self.count}"
        return made

    def all(self, kind: Kind) -> list[dict[str, Any]]:
        """The objects that are there, oldest first."""
        return self._objects.setdefault((kind.group, kind.plural), [])

    def named(self, plural: str) -> dict[str, Any] | None:
        """One of the objects that a resource of the core group has."""
        there = self._objects.get(("", plural))
        return there[0] if there else None

    def known(self, kind: Kind) -> dict[str, Any] | None:
        """One of the objects that are there."""
        there = self.all(kind)
        return self.rng.choice(there) if there else None

    def keep(self, kind: Kind, document: dict[str, Any]) -> None:
        """Remember an object as the server has shown it."""
        self.forget(kind, document["metadata"]["name"])
        self.all(kind).append(document)
        self.stock.learn(document, shape(kind))

    def forget(self, kind: Kind, name: str) -> None:
        there = self.all(kind)
        there[:] = [each for each in there if each["metadata"]["name"] != name]

    def forget_all(self, kind: Kind) -> None:
        self.all(kind).clear()

    def surplus(self) -> tuple[Kind, str] | None:
        """An object that has to go, if there are too many of its kind."""
        for kind in KINDS:
            there = self.all(kind)
            if len(there) > FEW.get(kind.plural, MOST):
                return kind, there[0]["metadata"]["name"]
        return None

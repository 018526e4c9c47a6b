"""What is rubbish of an engine, and what may be used yet: folders as runc makes them, and folders instead of cgroups."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from app.runtimes.cri.orphans import runc_roots
from app.runtimes.engine.orphan_cgroups import Note, Rubbish, read
from app.runtimes.engine.shims import shims
from tests.runtimes.conftest import PATIENCE
from tests.runtimes.engines import idle_shim
from tests.runtimes.remains import Remains

NOTED = """
{{"init_process_pid": 1, "init_process_start": 1, "cgroup_paths": {{"": "{cgroup}"}},
 "config": {{"labels": ["more", "bundle={bundle}"]}}}}
"""


class Machine:
    """One container that is known, and remains of others."""

    def __init__(self, folder: Path) -> None:
        self._root, cgroups, self._bundles = folder / "runc", folder / "cgroups", folder / "state"
        self._known = self._root / ("a" * 64)
        self._known.mkdir(parents=True)
        cgroup, bundle = cgroups / self._known.name, self._bundles / self._known.name
        cgroup.mkdir(parents=True)
        (self._known / "state.json").write_text(NOTED.format(cgroup=cgroup, bundle=bundle), encoding="utf-8")
        self._rubbish = Rubbish()

    def remains(self) -> Remains:
        return Remains(self._known)

    def removed(self, since: float) -> list[str]:
        return self._rubbish.remove([self._root], {self._known.name}, since, self._bundles)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setattr("app.runtimes.engine.orphan_cgroups.AT_LEAST", 0.0)
    return Machine(tmp_path)


def later() -> float:
    return time.time() + 60


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda it: it.make_folder().make_cgroups().note(), id="all"),
        pytest.param(lambda it: it.make_folder().note(), id="a folder"),
        pytest.param(lambda it: it.make_folder().make_cgroups(), id="nothing noted down"),
        pytest.param(lambda it: it.make_cgroups(), id="cgroups"),
    ],
)
def test_rubbish_is(machine: Machine, make: Callable[[Remains], Remains]) -> None:
    lost = make(machine.remains())

    assert machine.removed(later()) == [lost.id]
    assert lost.left() == set()


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda it: it.make_folder().make_cgroups().note(os.getpid()), id="lives"),
        pytest.param(
            lambda it: it.make_folder().make_cgroups().note(bundle="/another/state/id"), id="another engine's"
        ),
    ],
)
def test_no_rubbish_is_what(machine: Machine, make: Callable[[Remains], Remains]) -> None:
    kept = make(machine.remains())
    before = kept.left()

    assert machine.removed(later()) == []
    assert kept.left() == before


def test_what_is_younger_than_the_engine_may_be_just_about_to_be_made(machine: Machine) -> None:
    machine.remains().make_folder().make_cgroups().note()

    assert machine.removed(time.time() - 60) == []


def test_cgroups_without_a_folder_are_watched_for_a_while(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """As nothing tells whether they are older than the engine."""
    monkeypatch.setattr("app.runtimes.engine.orphan_cgroups.AT_LEAST", 3600.0)
    lost = machine.remains().make_cgroups()
    assert machine.removed(later()) == []
    monkeypatch.setattr("app.runtimes.engine.orphan_cgroups.AT_LEAST", 0.0)

    assert machine.removed(later()) == [lost.id]


def test_what_others_than_runc_keep_is_left_alone(machine: Machine) -> None:
    kept = machine.remains().make_folder()
    (kept.folder / "status").touch()

    assert machine.removed(later()) == []


def test_a_cgroup_in_which_or_below_which_somebody_is_stays_with_the_folder(machine: Machine) -> None:
    kept = machine.remains().make_folder().make_cgroups().note()
    below = next(iter(kept.cgroups)) / "below"
    below.mkdir()
    (below / "cgroup.procs").write_text("17\n", encoding="ascii")
    assert machine.removed(later()) == []
    (below / "cgroup.procs").unlink()

    assert machine.removed(later()) == [kept.id]


def test_what_somebody_is_at_work_on_stays(machine: Machine) -> None:
    kept = machine.remains().make_cgroups()
    shim = idle_shim(kept.id, "moby", "/any.sock")
    until = time.monotonic() + PATIENCE
    while kept.id not in {each.id for each in shims()}:  # its words are seen a moment after it has begun
        assert time.monotonic() < until
        time.sleep(0.01)
    try:
        assert machine.removed(later()) == []
    finally:
        shim.kill()
        shim.wait()
    assert machine.removed(later()) == [kept.id]


def test_systemd_has_more_in_the_names_of_its_cgroups(machine: Machine) -> None:
    lost, used = (machine.remains().in_scopes().make_folder().make_cgroups().note() for _ in range(2))
    (next(iter(used.cgroups)) / "cgroup.procs").write_text("17\n", encoding="ascii")

    assert machine.removed(later()) == [lost.id]
    assert lost.left() == set()
    assert used.left() == {used.folder, *used.cgroups}


def test_only_cgroups_of_the_container_itself_are_believed(tmp_path: Path) -> None:
    note = NOTED.format(cgroup="/sys/fs/cgroup/system.slice", bundle="/state/id")
    (tmp_path / "state.json").write_text(note, encoding="utf-8")

    assert read(tmp_path) == Note("/state/id", 1, 1, frozenset())


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        pytest.param({}, set(), id="nowhere if the engine is not containerd"),
        pytest.param(
            {
                "stateDir": "/s",
                "containerd": {"runtimes": {"runc": {"options": {"Root": ""}}, "other": {"options": None}}},
            },
            {Path("/run/containerd/runc/k8s.io")},
            id="the usual folder",
        ),
        pytest.param(
            {"stateDir": "/s", "containerd": {"runtimes": {"runc": {"options": {"Root": "/r"}}}}},
            {Path("/r/k8s.io")},
            id="one that is configured",
        ),
    ],
)
def test_runc_has_folders_in(config: dict[str, object], expected: set[Path]) -> None:
    assert runc_roots(config) == expected

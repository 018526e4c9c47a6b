"""Which images go when a node's disk fills up, and in which order."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as some

from app.plans.kubelet.container_history import Run
from app.plans.kubelet.image_gc import (
    Disk,
    StoredImage,
    bytes_to_free,
    removable_images,
    removable_runs,
    update_first_seen,
)
from tests.build import NOW


def an_image(name: str, *, used: float | None = None, seen: float = 3600) -> StoredImage:
    """Used, and first seen, so many seconds ago."""
    return StoredImage(
        name, 100, None if used is None else NOW - timedelta(seconds=used), NOW - timedelta(seconds=seen)
    )


@pytest.mark.parametrize(
    ("disk", "now", "expected"),
    [
        pytest.param(Disk(1000, 151), False, 0, id="below the high mark nothing has to go"),
        pytest.param(Disk(1000, 150), False, 50, id="at the high mark what is above the low one"),
        pytest.param(Disk(1000, 0), False, 200, id="on a full disk a fifth"),
        pytest.param(Disk(1000, 190), True, 10, id="with no time to wait what is above the low mark"),
        pytest.param(Disk(1000, 500), True, 0, id="nothing from a disk with room"),
        pytest.param(Disk(0, 0), False, 0, id="nothing from a disk of no size"),
    ],
)
def test_how_much_has_to_go(disk: Disk, now: bool, expected: int) -> None:
    assert bytes_to_free(disk, now=now) == expected


@pytest.mark.parametrize(
    ("images", "in_use", "expected"),
    [
        pytest.param(
            [an_image("a", used=60), an_image("b", used=600)], "", "ba", id="the least recently used one first"
        ),
        pytest.param(
            [an_image("a", used=60), an_image("b", seen=90 * 60)], "", "ba", id="one that was never used first"
        ),
        pytest.param([an_image("a"), an_image("b")], "a", "b", id="none that is in use"),
        pytest.param([an_image("a", seen=119)], "", "", id="none that has just come"),
        pytest.param([an_image("a", seen=120)], "", "a", id="one that has been here for two minutes"),
    ],
)
def test_what_goes(images: list[StoredImage], in_use: str, expected: str) -> None:
    assert "".join(each.id for each in removable_images(images, set(in_use), NOW)) == expected


def test_an_image_was_first_seen_once_and_is_forgotten_when_it_has_gone() -> None:
    before = update_first_seen({}, {"a", "b"}, NOW - timedelta(hours=1))

    assert update_first_seen(before, {"b", "c"}, NOW) == {"b": NOW - timedelta(hours=1), "c": NOW}


def a_run(attempt: int, state: str = "exited", minutes: float = 0, name: str = "main") -> Run:
    return Run(name, attempt, state, started_at=NOW, finished_at=NOW + timedelta(minutes=minutes))


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        pytest.param([a_run(0)], [], id="not the last"),
        pytest.param([a_run(0), a_run(1, "running")], [], id="not the one before that which runs"),
        pytest.param([a_run(0), a_run(1), a_run(2)], [1, 0], id="those before the last"),
        pytest.param([a_run(0), a_run(1, minutes=10), a_run(2), a_run(3)], [2, 0], id="but the last that was well"),
        pytest.param([a_run(0), a_run(0, name="other")], [], id="of each container for itself"),
        pytest.param([a_run(0, "created"), a_run(1, "created")], [], id="none that may yet run"),
    ],
)
def test_which_runs_nobody_needs(runs: list[Run], expected: list[int]) -> None:
    assert [run.attempt for run in removable_runs(runs)] == expected


@given(
    used=some.lists(some.none() | some.integers(0, 500), max_size=8),
    in_use=some.sets(some.integers(0, 7), max_size=8),
)
def test_nothing_in_use_ever_goes(used: list[int | None], in_use: set[int]) -> None:
    images = [an_image(str(number), used=each) for number, each in enumerate(used)]
    going = {each.id for each in removable_images(images, {str(each) for each in in_use}, NOW)}

    assert going == {each.id for each in images} - {str(each) for each in in_use}

"""Which runtime an agent takes that was told none."""

import os
from pathlib import Path

import pytest

from app.runtimes.choice import choose
from app.runtimes.oci import machine
from tests.runtimes import oci_images


def able(_: Path) -> str:
    return ""


def unable(_: Path) -> str:
    return "the oci runtime needs skopeo: apt-get install skopeo"


def test_containers_of_images_where_the_machine_has_what_it_takes(tmp_path: Path) -> None:
    assert choose(tmp_path / "agent", able).runtime == "oci"


def test_programs_of_the_machine_where_it_has_not(tmp_path: Path) -> None:
    found = choose(tmp_path / "agent", unable)

    assert found.runtime == "process"
    assert "apt-get install skopeo" in found.reason


@pytest.mark.parametrize(("first", "then", "kept"), [(able, unable, "oci"), (unable, able, "process")])
def test_what_was_chosen_stays(tmp_path: Path, first: machine.Obstacle, then: machine.Obstacle, kept: str) -> None:
    choose(tmp_path, first)

    assert choose(tmp_path, then).runtime == kept


def test_a_folder_of_an_earlier_version_keeps_its_processes(tmp_path: Path) -> None:
    (tmp_path / "containers").mkdir()

    found = choose(tmp_path, able)
    assert found.runtime == "process"
    assert "--runtime oci" in found.reason


def test_the_machine_of_the_tests_is_able(tmp_path: Path) -> None:
    if not oci_images.missing():
        assert machine.find_obstacle(tmp_path / "new") == ""
        assert os.listdir(tmp_path / "new") == []


def test_a_folder_that_cannot_be_named_in_options_is_an_obstacle(tmp_path: Path) -> None:
    assert "choose a folder without spaces" in machine.find_obstacle(tmp_path / "a b") or oci_images.missing()

"""`jobplane examples`: the manifests of the repository, wherever they are installed."""

import os
from pathlib import Path

import pytest

from tests.e2e.test_demo import run_command

ROOT = Path(__file__).parents[2] / "examples"


def files(folder: Path) -> dict[Path, bytes]:
    found = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(folder): path.read_bytes() for path in found}


@pytest.mark.parametrize("given", [pytest.param((), id="default"), pytest.param(("else/where",), id="named")])
def test_the_examples_are_copied_and_listed(tmp_path: Path, given: tuple[str, ...]) -> None:
    shown = run_command(tmp_path, "examples", *given)
    folder = tmp_path / (given[0] if given else "examples")

    assert shown.returncode == 0, shown.stderr
    assert files(folder) == files(ROOT)
    assert {tmp_path / line for line in shown.stdout.splitlines()} == {folder / name for name in files(ROOT)}


def test_what_someone_has_changed_is_kept(tmp_path: Path) -> None:
    run_command(tmp_path, "examples")
    changed = tmp_path / "examples" / "pi.yaml"
    changed.write_text("mine")

    again = run_command(tmp_path, "examples")

    assert again.returncode == 1
    assert again.stderr == f"examples{os.sep}pi.yaml exists and differs from the example: pass another folder\n"
    assert changed.read_text() == "mine"

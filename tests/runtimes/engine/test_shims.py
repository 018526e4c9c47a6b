"""What is older than an engine: the kernel tells of a process in which hundredth of a second it began, and no more."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from app.runtimes.engine.shims import is_older, started_at

TIMES = 20  # each would fail nine times in ten if the moment were taken for the beginning of that hundredth
LOOKS = 100  # whoever is interrupted as he looks at the clocks finds too early a moment


@contextmanager
def sleeping() -> Iterator[int]:
    """The pid of a process that does nothing."""
    with subprocess.Popen(["sleep", "1000"]) as process:
        try:
            yield process.pid
        finally:
            process.kill()


def test_what_was_there_just_before_an_engine_is_older(tmp_path: Path) -> None:
    for each in (tmp_path / str(number) for number in range(TIMES)):
        each.touch()
        with sleeping() as shim, sleeping() as engine:
            assert any(each.stat().st_ctime < (started_at(engine) or 0) for _ in range(LOOKS))
            assert any(is_older(shim, started_at(engine) or 0) for _ in range(LOOKS))


def test_what_does_not_live_is_not_older() -> None:
    with sleeping() as pid:
        pass
    assert started_at(pid) is None
    assert not is_older(pid, float("inf"))

"""Files of the audit log: rotation, backups, several processes, full disks, kills."""

import json
import os
import resource
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from app.api.audit import log_file
from app.api.audit.log_file import LogFile
from tests.conftest import Clock


@contextmanager
def opened(
    path: Path, clock: Clock | None = None, size: int = 1000, backups: int = 0, days: int = 0
) -> Iterator[LogFile]:
    log = LogFile(
        path,
        max_bytes=size,
        max_backups=backups,
        max_age=timedelta(days=days),
        now=clock or (lambda: datetime.now(UTC)),
    )
    try:
        yield log
    finally:
        log.close()


def line(number: int, size: int = 100) -> bytes:
    text = json.dumps({"number": number})
    return f'{text[:-1]}, "pad": "{"x" * (size - len(text) - 12)}"}}\n'.encode()


def numbers(*paths: Path) -> list[int]:
    """What the files have, each line of which must be whole."""
    return [json.loads(each)["number"] for path in paths for each in path.read_bytes().splitlines(keepends=True)]


def test_lines_are_appended_for_the_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "audit" / "audit.log"
    for start in (0, 3):
        with opened(path) as log:
            log.write(lines := deque(line(number) for number in range(start, start + 3)))
            assert not lines
    assert numbers(path) == [0, 1, 2, 3, 4, 5]
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_a_log_is_rotated_between_two_lines_when_it_is_full(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "audit.log"
    with opened(path, clock, size=1000) as log:
        for number in range(35):
            log.write(deque([line(number)]))
        log.write(deque(line(number) for number in range(35, 60)))
        backups = log.backups()
    assert len(backups) == 5
    assert numbers(*backups, path) == list(range(60))
    assert all(each.stat().st_size <= 1000 for each in (*backups, path))
    assert backups[0].name == f"audit-{clock.now:%Y-%m-%dT%H-%M-%S}.000.log"


def test_a_line_that_is_longer_than_a_file_gets_one_of_its_own(tmp_path: Path) -> None:
    with opened(tmp_path / "audit.log", size=50) as log:
        log.write(deque([line(0), line(1)]))
        assert numbers(*log.backups(), log.path) == [0, 1]


def test_only_so_many_backups_are_kept(tmp_path: Path, clock: Clock) -> None:
    with opened(tmp_path / "audit.log", clock, size=100, backups=2) as log:
        for number in range(10):
            clock.move(seconds=1)
            log.write(deque([line(number)]))
        assert numbers(*log.backups(), log.path) == [7, 8, 9]


def test_backups_are_deleted_when_they_are_old(tmp_path: Path, clock: Clock) -> None:
    other = tmp_path / "audit-of-mine.log"
    other.write_text("")
    with opened(tmp_path / "audit.log", clock, size=100, days=7) as log:
        for number in range(3):
            log.write(deque([line(number)]))
            clock.move(days=4)
        assert numbers(*log.backups()) == [0, 1]
        log.write(deque([line(3)]))
        assert numbers(*log.backups()) == [1, 2]
    clock.move(days=30)
    with opened(tmp_path / "audit.log", clock, size=100, days=7) as log:
        assert log.backups() == []
    assert other.exists()


def test_what_others_rename_or_delete_is_begun_anew(tmp_path: Path) -> None:
    path, moved = tmp_path / "audit.log", tmp_path / "moved.log"
    with opened(path) as log:
        log.write(deque([line(0)]))
        path.rename(moved)
        log.write(deque([line(1)]))
        assert (numbers(moved), numbers(path)) == ([0], [1])
        path.unlink()
        log.write(deque([line(2)]))
        os.truncate(path, 0)  # logrotate's copytruncate
        log.write(deque([line(3)]))
        assert numbers(path) == [3]


def test_two_processes_have_files_of_their_own(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "audit.log"
    with opened(path, clock, size=300) as first, opened(path, clock, size=300) as second:
        assert second.path == tmp_path / "audit.2.log"
        for number in range(10):
            first.write(deque([line(number)]))
            second.write(deque([line(100 + number)]))
        assert numbers(*first.backups(), first.path) == list(range(10))
        assert numbers(*second.backups(), second.path) == list(range(100, 110))
    with opened(path, clock) as third:
        assert third.path == path  # free again: its process has ended


def test_two_replicas_that_start_at_once_take_two_files(tmp_path: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path; from collections import deque; from datetime import *\n"
        "from app.api.audit.log_file import LogFile\n"
        "log = LogFile(Path(sys.argv[1]), max_bytes=10**6, max_backups=0, max_age=timedelta(), now=lambda: datetime.now(UTC))\n"
        "for n in range(500): log.write(deque([b'{\"number\": %d}\\n' % n]))\n"
        "print(log.path.name, flush=True); sys.stdin.read()\n"
    )
    arguments = [sys.executable, "-c", script, str(tmp_path / "audit.log")]
    replicas = [subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    try:
        names = {each.stdout.readline().strip() for each in replicas if each.stdout}
    finally:
        for each in replicas:
            each.communicate("")
    assert names == {"audit.log", "audit.2.log", "audit.3.log"}
    assert all(numbers(tmp_path / name) == list(range(500)) for name in names)


@pytest.mark.parametrize("left", [b'{"number": 9', b'{"number": 9' + b"x" * 100_000, b""])
def test_half_a_line_that_a_kill_left_is_cut_off(tmp_path: Path, left: bytes) -> None:
    path = tmp_path / "audit.log"
    path.write_bytes(line(0) + left)
    with opened(path) as log:
        log.write(deque([line(1)]))
    assert numbers(path) == [0, 1]


def test_a_file_of_half_a_line_only(tmp_path: Path) -> None:
    (tmp_path / "audit.log").write_bytes(b'{"number"')
    with opened(tmp_path / "audit.log") as log:
        log.write(deque([line(1)]))
        assert numbers(log.path) == [1]


def test_a_write_that_fails_half_way_leaves_no_half_line_and_loses_none(tmp_path: Path) -> None:
    """The limit on the size of files makes the kernel write a part, and then fail, as a full disk does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    waiting = deque(line(number) for number in range(1, 50))
    with opened(tmp_path / "audit.log", size=10**6) as log:
        log.write(deque([line(0)]))
        resource.setrlimit(resource.RLIMIT_FSIZE, (1050, before[1]))
        try:
            for _ in range(2):
                with pytest.raises(OSError, match="File too large"):
                    log.write(waiting)
                assert numbers(log.path) == [0]
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        log.write(waiting)
        assert numbers(log.path) == list(range(50))


def test_a_full_disk(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if (
        os.geteuid() != 0
        or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk], check=False).returncode
    ):
        pytest.skip("mounting a small disk needs root")
    try:
        with opened(disk / "audit.log", size=10**6) as log:
            (disk / "big").write_bytes(b"x" * 40_000)
            waiting = deque(line(number, 1000) for number in range(60))
            with pytest.raises(OSError, match="No space left on device"):
                log.write(waiting)
            numbers(log.path)
            (disk / "big").unlink()
            log.write(deque(waiting.popleft() for _ in range(20)))
            assert numbers(log.path) == list(range(20))
    finally:
        subprocess.run(["umount", disk], check=True)


def test_a_kill_leaves_whole_lines_and_perhaps_half_of_the_last(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from collections import deque; from datetime import *\n"
        "from app.api.audit.log_file import LogFile\n"
        "log = LogFile(Path(sys.argv[1]), max_bytes=10**6, max_backups=3, max_age=timedelta(), now=lambda: datetime.now(UTC))\n"
        "n = 0\n"
        "while True:\n"
        '    log.write(deque(b\'{"number": %d, "pad": "%s"}\\n\' % (i, b\'x\' * 5000) for i in range(n, n + 50)))\n'
        "    n += 50\n"
        "    if n % 500 == 0: print(flush=True)\n"
    )
    path = tmp_path / "audit.log"
    for _ in range(3):
        writer = subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE)
        assert writer.stdout
        writer.stdout.readline()
        writer.send_signal(signal.SIGKILL)
        writer.communicate()
        with opened(path, size=10**6, backups=3) as log:
            assert log.path == path
            for each in (*log.backups(), path):
                numbers(each)


def test_too_many_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_file, "_MOST_PROCESSES", 1)
    with (
        opened(tmp_path / "audit.log"),
        pytest.raises(OSError, match="pass another JOBPLANE_AUDIT_LOG_PATH"),
        opened(tmp_path / "audit.log"),
    ):
        pass


def test_standard_output_takes_whole_lines(capfd: pytest.CaptureFixture[str]) -> None:
    writer = threading.Thread(target=log_file.StandardOutput().write, args=[deque([line(0), line(1)])])
    writer.start()
    writer.join()
    assert [json.loads(each)["number"] for each in capfd.readouterr().out.splitlines()] == [0, 1]

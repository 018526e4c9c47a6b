"""Users for namespaces: the same for ever, and never one for two."""

from pathlib import Path

import pytest

from app.runtimes.base import CreateError
from app.runtimes.process.pod_users import DEFAULT_RANGE, PodUsers, is_mapped, parse_range

SMALL = parse_range("5000-5009")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "users"


def test_a_namespace_has_the_same_user_on_every_machine_and_after_every_restart(file: Path, tmp_path: Path) -> None:
    users = parse_range(DEFAULT_RANGE)
    given = PodUsers(file, users).user_of("ns-1")

    assert given in users
    assert PodUsers(file, users).user_of("ns-1") == given
    assert PodUsers(tmp_path / "elsewhere", users).user_of("ns-1") == given


def test_no_user_is_given_twice_until_there_is_none_left(file: Path) -> None:
    users = PodUsers(file, SMALL)
    given = [users.user_of(f"ns-{number}") for number in range(SMALL.size)]

    assert sorted(given) == list(range(5000, 5010))
    with pytest.raises(CreateError, match="enlarge JOBPLANE_POD_UID_RANGE"):
        users.user_of("one more")
    assert [PodUsers(file, SMALL).user_of(f"ns-{number}") for number in range(SMALL.size)] == given


def test_a_torn_line_is_forgotten_and_the_next_is_whole(file: Path) -> None:
    given = PodUsers(file, SMALL).user_of("ns-1")
    with file.open("a") as torn:
        torn.write("ns-2 50")
    other = PodUsers(file, SMALL).user_of("ns-3")

    assert file.read_text() == f"ns-1 {given}\nns-3 {other}\n"


def test_another_range_gives_another_user_for_ever(file: Path) -> None:
    old = PodUsers(file, SMALL).user_of("ns-1")
    moved = parse_range("6000-6009")
    new = PodUsers(file, moved).user_of("ns-1")

    assert old in SMALL
    assert new in moved
    assert PodUsers(file, moved).user_of("ns-1") == new


@pytest.mark.parametrize(
    "text", ["", "5-9", "5000", "6000-5000", "5000-2147483648", "a-b", "5000-6000-7000", "-1-5000"]
)
def test_what_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a range of user ids such as 2001000000-2068108863"):
        parse_range(text)


@pytest.mark.parametrize(
    ("map_", "mapped"),
    [
        ("         0          0 4294967295\n", True),
        ("0 100000 5005\n", False),
        ("0 100000 65536\n", True),
        ("0 1000 1\n5000 100000 9\n", False),
        ("0 1000 1\n5000 100000 10\n", True),
        ("", False),
    ],
)
def test_a_range_counts_only_where_the_agent_s_user_namespace_has_it(map_: str, mapped: bool) -> None:
    assert is_mapped(SMALL, map_) == mapped

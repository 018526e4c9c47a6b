"""Waiting for a database: where it is, and how often that is said."""

import logging

import pytest

from app.store.database_wait import UrlError, is_due, place_of, problem_of

TCP, SOCKET = "postgresql://u:p@db/x", "postgresql://u@/x?host=/run/pg&port=5432"


@pytest.mark.parametrize(
    ("dsn", "place"),
    [
        ("postgresql://u:s%40crt@db.example/x", "db.example:5432"),
        ("postgresql://u:secret@db.example:6000/x", "db.example:6000"),
        ("postgresql://u:secret@a:1,b/x", "a:1,b:5432"),
        ("postgresql://u:secret@[::1]:6000/x", "[::1]:6000"),
        ("postgresql://u:secret@[::1]/x", "[::1]:5432"),
        ("postgresql://db/x", "db:5432"),
        ("postgresql:///x?host=db&port=6000", "db:6000"),
        (SOCKET, "/run/pg"),
        ("postgresql:///x", "localhost:5432"),
    ],
)
def test_the_place_of_a_database_is_told_without_its_password(dsn: str, place: str) -> None:
    assert place_of(dsn) == place


@pytest.mark.parametrize(
    ("dsn", "waited", "told_at", "due"),
    [
        pytest.param(TCP, 0.5, None, False, id="not at once"),
        pytest.param(TCP, 2.0, None, True, id="soon"),
        pytest.param(TCP, 20.0, 2.0, False, id="not again and again"),
        pytest.param(TCP, 32.0, 2.0, True, id="but now and then"),
        pytest.param(SOCKET, 20.0, None, False, id="one of this machine is being started"),
        pytest.param(SOCKET, 30.0, None, True, id="unless that takes long"),
    ],
)
def test_when_it_is_said(dsn: str, waited: float, told_at: float | None, due: bool) -> None:
    assert is_due(waited, told_at, dsn) is due


@pytest.mark.parametrize(
    "dsn",
    ["mysql://u:secret@h/x", "postgresql://u:sec/ret@h:x/x", "postgresql://u:secret@h:99x/x"],
)
async def test_a_url_that_cannot_be_meant_is_not_waited_for(dsn: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG), pytest.raises(UrlError) as refused:
        await problem_of(dsn)
    assert "sec" not in str(refused.value)

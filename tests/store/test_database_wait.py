"""Waiting for a database: where it is, and how often that is said."""

import logging

import pytest

from app.store.database_wait import UrlError, place_of, problem_of, quiet_seconds

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
    ("dsn", "seconds"),
    [pytest.param(TCP, 2, id="elsewhere"), pytest.param(SOCKET, 30, id="one of this machine is being started")],
)
def test_a_wait_is_logged_only_after_a_while(dsn: str, seconds: float) -> None:
    assert quiet_seconds(dsn) == seconds


@pytest.mark.parametrize(
    "dsn",
    ["mysql://u:secret@h/x", "postgresql://u:sec/ret@h:x/x", "postgresql://u:secret@h:99x/x"],
)
async def test_a_url_that_cannot_be_meant_is_not_waited_for(dsn: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG), pytest.raises(UrlError) as refused:
        await problem_of(dsn)
    assert "sec" not in str(refused.value)

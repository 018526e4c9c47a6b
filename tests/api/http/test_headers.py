"""Headers of a request, read from its scope."""

import pytest

from app.api.http.headers import header_of

HEADERS = [(b"accept", b"application/json"), (b"accept", b"*/*"), (b"user-agent", b"caf\xe9"), (b"x-empty", b"")]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        pytest.param(b"accept", "application/json", id="the first of several"),
        pytest.param(b"user-agent", "café", id="latin-1"),
        pytest.param(b"x-empty", "", id="empty"),
        pytest.param(b"authorization", None, id="absent"),
    ],
)
def test_a_header(name: bytes, value: str | None) -> None:
    assert header_of({"headers": HEADERS}, name) == value

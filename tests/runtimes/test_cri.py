"""What is particular to engines behind CRI: they tell events in their own ways, or none."""

import pytest

from app.runtimes.cri_events import _fields
from tests.runtimes.conftest import Lab, exits


async def test_an_engine_without_events_is_asked_again_and_again(cri: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.runtimes.cri_events._BY_CONTAINERD", "/no.such.Service/Method")
    await cri.restart()
    key = await cri.start(exits(6))

    assert (await cri.ended(key)).exit_code == 6


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        pytest.param(b"", [], id="nothing"),
        pytest.param(b"\x0a\x01a\x10\x96\x01\x22\x02bc", [(1, b"a"), (2, 150), (4, b"bc")], id="texts and numbers"),
        pytest.param(b"\x09" + bytes(8) + b"\x15" + bytes(4) + b"\x1a\x00", [(3, b"")], id="none of fixed length"),
        pytest.param(b"\x0a\x85", [(1, b"")], id="cut off"),
    ],
)
def test_fields_of_a_message_are_found(message: bytes, expected: list[tuple[int, int | bytes]]) -> None:
    assert [*_fields(message)] == expected

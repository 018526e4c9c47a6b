"""The SPDY framer: what goes in comes out however it is cut, and what makes no sense is refused at little cost."""

import contextlib
import struct
import zlib
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as some

from app.runtimes.spdy import (
    DICTIONARY,
    MOST_CONTROL,
    MOST_HEADERS,
    Data,
    Decoder,
    Encoder,
    Frame,
    GoAway,
    Malformed,
    Open,
    Ping,
    Reset,
)

NUMBERS = some.integers(1, 2**31 - 1)
WORDS = some.integers(0, 2**32 - 1)
NAMES = some.text("abcdefghijklmnopqrstuvwxyz-", min_size=1, max_size=12)
FRAMES = some.one_of(
    some.builds(Open, NUMBERS, some.dictionaries(NAMES, some.text(max_size=20), max_size=4), some.booleans()),
    some.builds(Data, NUMBERS, some.binary(min_size=1, max_size=200), some.booleans()),
    some.builds(Data, NUMBERS, some.just(b""), some.just(True)),
    some.builds(Reset, NUMBERS, WORDS),
    some.builds(Ping, WORDS),
    some.builds(GoAway, NUMBERS, WORDS),
)


def encoded(encoder: Encoder, frame: Frame) -> bytes:
    match frame:
        case Open(stream, headers, end):
            return encoder.open(stream, headers, end=end)
        case Data(stream, data, end):
            return encoder.data(stream, data, end=end)
        case Reset(stream, status):
            return encoder.reset(stream, status)
        case Ping(number):
            return encoder.ping(number)
        case GoAway(last, status):
            return encoder.go_away(last, status)


def joined(frames: list[Frame]) -> list[Frame]:
    """With the pieces of data frames put together, as far as that shows."""
    result: list[Frame] = []
    for frame in frames:
        match (result[-1] if result else None), frame:
            case Data(before, data, False), Data(stream, more, end) if before == stream:
                result[-1] = Data(stream, data + more, end)
            case _:
                result.append(frame)
    return result


@given(frames=some.lists(FRAMES, max_size=12), cuts=some.lists(some.integers(0, 2000), max_size=12))
def test_what_was_encoded_is_decoded_however_it_is_cut(frames: list[Frame], cuts: list[int]) -> None:
    encoder, decoder = Encoder(), Decoder()
    wire = b"".join(encoded(encoder, frame) for frame in frames)
    places = sorted({0, len(wire), *(min(cut, len(wire)) for cut in cuts)})

    found = [frame for start, end in pairwise(places) for frame in decoder.feed(wire[start:end])]

    assert joined(found) == joined(frames)


@given(wire=some.binary(max_size=400))
def test_any_bytes_are_frames_or_malformed(wire: bytes) -> None:
    with contextlib.suppress(Malformed):
        list(Decoder().feed(wire))


@given(noise=some.binary(max_size=60), kind=some.integers(0, 20), flags=some.integers(0, 255))
def test_any_control_frame_is_understood_or_malformed(noise: bytes, kind: int, flags: int) -> None:
    with contextlib.suppress(Malformed):
        list(Decoder().feed(struct.pack(">HHI", 0x8003, kind, flags << 24 | len(noise)) + noise))


def a_stream_with(packed: bytes) -> bytes:
    body = struct.pack(">IIH", 1, 0, 0) + packed
    return struct.pack(">HHI", 0x8003, 1, len(body)) + body


def packed(block: bytes) -> bytes:
    pack = zlib.compressobj(zdict=DICTIONARY)
    return pack.compress(block) + pack.flush(zlib.Z_SYNC_FLUSH)


@pytest.mark.parametrize(
    "wire",
    [
        pytest.param(b"\x80\x02\x00\x01\x00\x00\x00\x00", id="another version"),
        pytest.param(struct.pack(">HHI", 0x8003, 1, MOST_CONTROL + 1), id="a control frame too long to wait for"),
        pytest.param(a_stream_with(b"not compressed"), id="headers that are not compressed"),
        pytest.param(a_stream_with(packed(bytes(MOST_HEADERS * 100))), id="headers that unpack without end"),
        pytest.param(a_stream_with(packed(struct.pack(">I", 2**31))), id="more headers than there are"),
        pytest.param(a_stream_with(packed(struct.pack(">II", 1, 9) + b"short")), id="a name that ends too early"),
        pytest.param(a_stream_with(packed(struct.pack(">II", 1, 1) + b"\xff\0\0\0\0")), id="a name that is no text"),
        pytest.param(a_stream_with(b"")[:8] + b"\0" * 9, id="a stream without its number"),
        pytest.param(struct.pack(">HHI", 0x8003, 6, 2) + b"\0\0", id="a ping that is too short"),
    ],
)
def test_refuses(wire: bytes) -> None:
    with pytest.raises(Malformed):
        list(Decoder().feed(wire + b"\0" * 10))


def test_data_is_passed_on_before_its_frame_is_whole() -> None:
    decoder = Decoder()

    assert list(decoder.feed(struct.pack(">II", 1, 1 << 24 | 0xFFFFFF) + b"some")) == [Data(1, b"some")]
    assert list(decoder.feed(b"more")) == [Data(1, b"more")]


def test_frames_of_no_interest_leave_the_compression_in_step() -> None:
    encoder, decoder = Encoder(), Decoder()
    wire = encoder.reply(2) + encoder.open(1, {"streamtype": "error"})

    assert list(decoder.feed(wire)) == [Open(1, {"streamtype": "error"})]


def test_the_dictionary_is_that_of_the_specification() -> None:
    assert (len(DICTIONARY), zlib.adler32(DICTIONARY)) == (1423, 0xE3C6A7C2)

"""Packing: a version of an object as LZ4 with a fixed dictionary, about a sixth of its JSON.

Objects of a kind are alike, and a version is too short for a compressor to learn that from it. The dictionary is text that
typical Jobs, pods, events and leases have in common, so that only what differs is stored: names, UIDs, times.

A packed version is PACKED (which says with which dictionary), the length of the contents in four bytes, little endian, and an LZ4
block. The contents are three lines: selector index, that of the version before (empty if it is the same), and the object's JSON.
JSON begins with another byte, and so does what is encrypted.
"""

from importlib.resources import files
from typing import NamedTuple

import lz4.block

PACKED = b"\x01"
LARGEST = 16 << 10  # contents in bytes: an LZ4 block reaches back 64 KiB, dictionary included
DICTIONARY = (files(__package__) / "dictionary_1.txt").read_bytes()
# LZ4 reads the whole dictionary before each object, which takes longer than to pack a small one. So each kind is packed with as
# much of the dictionary's end as it uses. Readers need not know how much: references count backwards.
_EVENTS = DICTIONARY[-4_890:]
_ENDS = {"jobs.batch": DICTIONARY, "leases.coordination.k8s.io": DICTIONARY, "pods": DICTIONARY[-9_480:]}


class Contents(NamedTuple):
    """What a version is made of. Selector indexes are JSON; `old_selector_index` None if it is the same."""

    selector_index: str
    old_selector_index: str | None
    body: bytes


def pack(contents: Contents, kind: str) -> bytes | None:
    """Return what is stored of an object of a kind, such as `jobs.batch`; None for a large one, which is stored as it is."""
    index, old_index, body = contents
    lines = b"%b\n%b\n%b" % (index.encode(), (old_index or "").encode(), body)
    if len(lines) > LARGEST:
        return None
    packed: bytes = lz4.block.compress(lines, dict=_ENDS.get(kind, _EVENTS))
    return PACKED + packed


def unpack(stored: bytes) -> Contents:
    """Return the contents of a packed version."""
    lines: bytes = lz4.block.decompress(memoryview(stored)[1:], dict=DICTIONARY)
    index, old_index, body = lines.split(b"\n", 2)
    return Contents(index.decode(), old_index.decode() or None, body)


def unpack_body(stored: bytes) -> bytes:
    """Return the object's JSON. What is not packed is returned as it is."""
    return unpack(stored).body if stored.startswith(PACKED) else stored


def pack_body(body: bytes, kind: str) -> bytes:
    """Return an object's JSON as it is stored where it has no selector index."""
    return pack(Contents("", None, body), kind) or body


# SQL: size of what a version of the table {0} is made of, without reading what Postgres stores apart from a row.
SIZE = """case when {0}.marks is null
    then get_byte({0}.body, 1) + (get_byte({0}.body, 2) << 8) else octet_length({0}.body) end"""
# SQL: the same of a column {0} that has no selector index beside it.
BODY_SIZE = """case when substring({0} from 1 for 1) = '\\x01'
    then get_byte({0}, 1) + (get_byte({0}, 2) << 8) else octet_length({0}) end"""

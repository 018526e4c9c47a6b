"""Write sets: what `commit` takes. Every write of a set happens, or none."""

from datetime import datetime
from typing import Literal

import msgspec

from app.machinery.base import Object
from app.store.change_feed import SelectorIndex
from app.store.errors import Key

MUST_NOT_EXIST = 0
MUST_LIVE = -1  # exist, and not be on its way out


class Write(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One object's next version, or, as `precondition`, only a demand on an object.

    expected: MUST_NOT_EXIST, MUST_LIVE (guards), or the revision that the writer has seen.
    body: the object's JSON without resourceVersion; for a deletion, its last state.
    """

    key: Key
    change: Literal["A", "M", "D", "G"]
    expected: int
    uid: str = ""
    body: bytes = b""
    selector_index: SelectorIndex = SelectorIndex()
    old_selector_index: SelectorIndex | None = None
    owner: str | None = None
    node: str | None = None
    deleting: bool = False
    dormant: str | None = None  # summary, if controllers need not hold the object any more
    expires_at: datetime | None = None  # of a dormant object
    object: Object | None = None  # what body says, for mirrors in this process: they need not decode it again


def precondition(key: Key, expected: int = MUST_LIVE) -> Write:
    """The set is refused unless the object is as expected."""
    return Write(key=key, change="G", expected=expected)

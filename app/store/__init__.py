"""Everything that is remembered: Postgres, and nothing outside this package knows it. `open_store` is the way in."""

from app.store.commit import MUST_LIVE, MUST_NOT_EXIST, Write, guard
from app.store.election import elected
from app.store.errors import Compacted, Conflict, Key, OutcomeUnknown, Unavailable
from app.store.feed import Change, Feed, Loss, Marks, topic_of
from app.store.logs import Append, Stream
from app.store.mirror import Mirror
from app.store.read import KEPT_SHORT, Head, Page, Query
from app.store.store import READ_ONLY, Store, open_store
from app.store.tokens import Admission, Holder, Limits, Listed, Need, Place
from app.store.wait import UrlError, despite_outages, place_of, problem_of

__all__ = [
    "KEPT_SHORT",
    "MUST_LIVE",
    "MUST_NOT_EXIST",
    "READ_ONLY",
    "Admission",
    "Append",
    "Change",
    "Compacted",
    "Conflict",
    "Feed",
    "Head",
    "Holder",
    "Key",
    "Limits",
    "Listed",
    "Loss",
    "Marks",
    "Mirror",
    "Need",
    "OutcomeUnknown",
    "Page",
    "Place",
    "Query",
    "Store",
    "Stream",
    "Unavailable",
    "UrlError",
    "Write",
    "despite_outages",
    "elected",
    "guard",
    "open_store",
    "place_of",
    "problem_of",
    "topic_of",
]

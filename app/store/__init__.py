"""Everything that is remembered: Postgres, and nothing outside this package knows it. `open_store` is the way in."""

from app.store.commit import MUST_LIVE, MUST_NOT_EXIST, Write, guard
from app.store.election import elected
from app.store.errors import Compacted, Conflict, Key, OutcomeUnknown, Unavailable
from app.store.feed import Change, Feed, Marks, topic_of
from app.store.logs import Append, Stream
from app.store.mirror import Mirror
from app.store.read import Head, Page, Query
from app.store.store import Store, open_store
from app.store.tokens import Holder, Need
from app.store.wait import despite_outages, problem_of

__all__ = [
    "MUST_LIVE",
    "MUST_NOT_EXIST",
    "Append",
    "Change",
    "Compacted",
    "Conflict",
    "Feed",
    "Head",
    "Holder",
    "Key",
    "Marks",
    "Mirror",
    "Need",
    "OutcomeUnknown",
    "Page",
    "Query",
    "Store",
    "Stream",
    "Unavailable",
    "Write",
    "despite_outages",
    "elected",
    "guard",
    "open_store",
    "problem_of",
    "topic_of",
]

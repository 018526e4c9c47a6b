"""The store: everything that is remembered. Postgres, which nothing outside this package knows. `open_store` is the way in.

What belongs here: objects and their history: the commit of write sets, reads, the change feed, mirrors, timelines, compaction;
beside them tokens, job records, the outbox of webhooks, the locks of leaders and of rare writes; and `logs/`, `encryption/` (of
Secrets), `schema/` with its migrations. The Postgres that `jobplane up` starts is `app.postgres`.

May import: `app.plans`, `app.kinds`, `app.machinery`. Imported by: the registry, the API, controllers, `app.main`.
Start reading: `store`, `commit` (the only way to write), `change_feed`, `reader`, `mirror`.
"""

from app.store.change_feed import Change, Feed, Loss, SelectorIndex, topic_of
from app.store.database_wait import UrlError, despite_outages, place_of, problem_of
from app.store.encryption.master_keys import MasterKeyError, master_keys
from app.store.errors import Compacted, Conflict, Key, OutcomeUnknown, Unavailable
from app.store.leader_lock import hold_leader_lock
from app.store.logs.logs import Append, Stream
from app.store.mirror import DormantKinds, Mirror
from app.store.reader import SHORT_HISTORY, Page, Query, StoredObject
from app.store.store import READ_ONLY, Store, open_store
from app.store.tokens import Admission, Holder, Limits, Listed, Need, Place, Renewal
from app.store.write_set import MUST_LIVE, MUST_NOT_EXIST, Write, precondition

__all__ = [
    "MUST_LIVE",
    "MUST_NOT_EXIST",
    "READ_ONLY",
    "SHORT_HISTORY",
    "Admission",
    "Append",
    "Change",
    "Compacted",
    "Conflict",
    "DormantKinds",
    "Feed",
    "Holder",
    "Key",
    "Limits",
    "Listed",
    "Loss",
    "MasterKeyError",
    "Mirror",
    "Need",
    "OutcomeUnknown",
    "Page",
    "Place",
    "Query",
    "Renewal",
    "SelectorIndex",
    "Store",
    "StoredObject",
    "Stream",
    "Unavailable",
    "UrlError",
    "Write",
    "despite_outages",
    "hold_leader_lock",
    "master_keys",
    "open_store",
    "place_of",
    "precondition",
    "problem_of",
    "topic_of",
]

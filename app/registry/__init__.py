"""What the API means, for any kind: create, get, list, watch, update, patch, delete, bind. Above the store, below HTTP.

What belongs here: `verbs/` (once for all kinds, and what differs by kind), `admission/`, `webhook_calls/`, `authorization/`,
`agents/` (what agents report and ask); here: `registry`, the facade that the API asks; leader election; periodic tasks; the
writing of plans and of events; the history of Jobs; conversion of custom objects by webhooks. Nothing here knows HTTP. The API
never imports the store: what of the store's vocabulary it needs is handed on here.

May import: `app.store`, `app.plans`, `app.kinds`, `app.machinery`. Imported by: `app.api`, `app.controllers`.
Start reading: `registry`, `verbs.objects`, `verbs.versions` (what an object becomes), `plan_writer`, `leader_election`.
"""

from app.store import (
    Admission,
    Append,
    Compacted,
    Holder,
    Key,
    Limits,
    Listed,
    Need,
    OutcomeUnknown,
    Page,
    Place,
    Renewal,
    SelectorIndex,
    StoredObject,
    Stream,
    Unavailable,
)
from app.store.job_records import MOST_EVENT_PODS, JobRow, ListedJob, RecordQuery
from app.store.job_records import Place as RecordPlace
from app.store.logs.kept_logs import After, KeptLog
from app.store.logs.logs import Logs
from app.store.notifications import AgentCalls

__all__ = [
    "MOST_EVENT_PODS",
    "Admission",
    "After",
    "AgentCalls",
    "Append",
    "Compacted",
    "Holder",
    "JobRow",
    "KeptLog",
    "Key",
    "Limits",
    "Listed",
    "ListedJob",
    "Logs",
    "Need",
    "OutcomeUnknown",
    "Page",
    "Place",
    "RecordPlace",
    "RecordQuery",
    "Renewal",
    "SelectorIndex",
    "StoredObject",
    "Stream",
    "Unavailable",
]

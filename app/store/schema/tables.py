"""Tables: the one place that declares them, their columns, indexes and constraints. `schema` adds functions and views.

Imported by migrations, which are made from what differs (`make migration`), and by tests. Whatever serves speaks SQL over
asyncpg and does without SQLAlchemy, which would cost each process 14 MB; a test holds that SQL against these tables.
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Computed,
    DateTime,
    Index,
    Integer,
    Interval,
    LargeBinary,
    MetaData,
    Table,
    Text,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

METADATA = MetaData()
_IDENTIFIER = """case when starts_with(username, 'system:bootstrap:') then substr(username, 18)
    else encode(substring(digest from 1 for 6), 'hex') end"""
_PLAIN = Text(collation="C")  # byte order, so that pages sort alike here and in Python

COUNTER = Table(
    "counter",
    METADATA,
    Column("id", Integer, CheckConstraint("id = 1", name="counter_is_one_row"), primary_key=True, autoincrement=False),
    Column("revision", BigInteger, nullable=False),  # the last revision given out
    Column("floor", BigInteger, nullable=False),  # history at or below it may be gone
    Column("secrets_floor", BigInteger, nullable=False, server_default="0"),  # the same of Secrets, if it is higher
    Column("timeline", BigInteger, nullable=False, server_default="0"),  # the newest of `timelines`
    postgresql_with={"fillfactor": "10"},
)

# Every version of every object. For people who query, the view `history` shows it with nothing packed.
VERSIONS = Table(
    "versions",
    METADATA,
    Column("revision", BigInteger, primary_key=True, autoincrement=False),
    Column("kind", _PLAIN, nullable=False),
    Column("namespace", _PLAIN, nullable=False),
    Column("name", _PLAIN, nullable=False),
    Column("uid", Text, nullable=False),
    Column("change", Text, nullable=False),  # ADDED, MODIFIED, DELETED as A, M, D
    # Selector index: labels and selectable fields, JSON. Null: it is in `body`, and so is `old_marks`.
    Column("marks", Text),
    Column("old_marks", Text),  # that of the version before; null when the same
    # The object's JSON, without its resourceVersion; or all of the version, packed (`app.store.packing`).
    Column("body", LargeBinary, nullable=False),
    Column("recorded_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column("previous", BigInteger),  # revision of the version before; 0 for the first, null if it is not known
    Column("node", Text),  # where a pod is bound; null also if an earlier version wrote it
    Index("versions_by_kind", "kind", "revision"),
    Index("versions_by_time", "recorded_at", postgresql_using="brin"),  # rows lie in the order of time: a few pages do
    Index(
        "versions_of_ends",
        "kind",
        "name",
        "revision",
        postgresql_where=text("change = 'D' and kind in ('namespaces', 'nodes')"),
    ),
)

# The labels in a selector index, each as it stands there: an array, of whose elements Postgres knows how common they are.
_LABELS = """regexp_split_to_array(split_part(marks, '"fields":{', 1), '[{},]+')"""
HEADS = Table(
    "heads",
    METADATA,
    Column("kind", _PLAIN, primary_key=True),
    Column("namespace", _PLAIN, primary_key=True),
    Column("name", _PLAIN, primary_key=True),
    Column("uid", Text, nullable=False),
    Column("revision", BigInteger, nullable=False),
    Column("deleting", Boolean, nullable=False),
    Column("owner", Text),  # uid of the controller
    Column("node", Text),  # where a pod is bound
    Column("marks", Text, nullable=False),
    Column("dormant", Text),  # summary of what has ended and controllers do not hold; null: they do
    Column("expires_at", DateTime(timezone=True)),  # of a dormant object: when it is to be deleted
    Index("heads_by_owner", "owner", postgresql_where=text("owner is not null")),
    Index("heads_by_node", "node", postgresql_where=text("node is not null")),
    Index("heads_by_revision", "revision"),
    Index(
        "heads_awake",
        "kind",
        "namespace",
        "name",
        postgresql_where=text("dormant is null and kind in ('jobs.batch', 'pods')"),
    ),
    Index(
        "heads_awake_custom",
        "kind",
        "namespace",
        "name",
        postgresql_where=text("dormant is null and kind like '%.%.%'"),  # custom kinds: their groups have a dot
    ),
    Index(
        "heads_by_label",
        text(_LABELS),
        postgresql_using="gin",
        postgresql_where=text("dormant is not null"),
    ),
    Index("heads_by_expiry", "expires_at", postgresql_where=text("expires_at is not null")),
)

# UIDs of Jobs that were deleted before their pods: so the garbage collector finds dormant ones after a crash.
DEPARTED_OWNERS = Table("departed_owners", METADATA, Column("uid", Text, primary_key=True))

# Where the revisions of a run of the server begin, and which was the last before: those in between are lost.
TIMELINES = Table(
    "timelines",
    METADATA,
    Column("began", BigInteger, primary_key=True, autoincrement=False),
    Column("after", BigInteger, nullable=False),
    Column("recorded_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
)

# The run of the server that the newest timeline is of; empty after a crash, a promotion or a restore.
SERVER_RUNS = Table("server_runs", METADATA, Column("run", Text, primary_key=True), prefixes=["UNLOGGED"])

TOKENS = Table(
    "tokens",
    METADATA,
    Column("digest", LargeBinary, primary_key=True),  # SHA-256: the token itself is never stored
    Column("username", Text, nullable=False),
    Column("groups", ARRAY(Text), nullable=False),
    Column("nodes", ARRAY(Text), nullable=False),  # node names, or prefixes with *, that an agent may speak for
    Column("expires_at", DateTime(timezone=True)),
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column("uid", Text, nullable=False, server_default=""),  # of the holder, if that is an object: a service account
    Column("extra", JSONB, nullable=False, server_default="{}"),  # what else is known of the holder
    Column("audiences", ARRAY(Text), nullable=False, server_default="{}"),  # whom it is meant for; none: this API
    Column("needs", JSONB, nullable=False, server_default="[]"),  # objects that must live for it to be good
    # By which it is listed and revoked: the name of a join token, else the beginning of the digest.
    Column("id", Text, Computed(_IDENTIFIER, persisted=True)),
    Column("uses", Integer),  # of a join token: how many nodes may still join by it; null: any number
    Column("node_life", Interval),  # of a join token: how long the credentials of those nodes last; null: for ever
    Column("file", Text, nullable=False, server_default=""),  # the file of a data folder in which it lies
    Column("revoked", Boolean, nullable=False, server_default="false"),
    Index("tokens_by_id", "id"),
    Index("tokens_by_expiry", "expires_at", postgresql_where=text("expires_at is not null")),
)

# Keys that encrypt Secrets, wrapped under a master key, which is not in the database.
DATA_KEYS = Table(
    "data_keys",
    METADATA,
    Column("id", Text, primary_key=True),  # hexadecimal; what it encrypts names it
    Column("master", Text, nullable=False),  # name of the master key; empty: from then on Secrets are plain text
    Column("wrapped", LargeBinary, nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column("active_at", DateTime(timezone=True), nullable=False),
)

LOG_STREAMS = Table(
    "log_streams",
    METADATA,
    Column("pod_uid", Text, primary_key=True),
    Column("container", Text, primary_key=True),
    Column("attempt", Integer, primary_key=True, autoincrement=False),
    Column("namespace", Text, nullable=False),
    Column("pod", Text, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("recorded_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column("kept_from", BigInteger, nullable=False, server_default="0"),  # what was before it is no longer kept
    Column("job", Text, nullable=False, server_default=""),  # the pod's label
    Column("ended_at", DateTime(timezone=True)),  # when it was noticed that no more comes
    Index("log_streams_by_pod", "namespace", "pod"),
    Index("log_streams_by_job", "namespace", "job", postgresql_where=text("job <> ''")),
    Index("log_streams_by_end", "ended_at", postgresql_where=text("ended_at is not null")),
    Index("log_streams_open", "pod_uid", postgresql_where=text("ended_at is null")),
)

LOG_CHUNKS = Table(
    "log_chunks",
    METADATA,
    Column("pod_uid", Text, primary_key=True),
    Column("container", Text, primary_key=True),
    Column("attempt", Integer, primary_key=True, autoincrement=False),
    Column("start", BigInteger, primary_key=True, autoincrement=False),
    Column("data", LargeBinary, nullable=False),
)

NODE_USAGE = Table(
    "node_usage",
    METADATA,
    Column("node", Text, primary_key=True),
    Column("reported_at", DateTime(timezone=True), nullable=False),
    Column("body", LargeBinary, nullable=False),  # the agent's word, JSON
    prefixes=["UNLOGGED"],  # out of date in a minute: not worth a log
)

# What stays of Jobs. A row of a Job is there from its end on; rows of its pods, from theirs.
JOB_RECORDS = Table(
    "job_records",
    METADATA,
    Column("uid", Text, primary_key=True),
    Column("namespace", _PLAIN, nullable=False),
    Column("name", _PLAIN, nullable=False),
    Column("labels", JSONB, nullable=False),
    Column("result", Text, nullable=False),  # Complete, Failed or Deleted
    Column("created_at", DateTime(timezone=True)),
    Column("started_at", DateTime(timezone=True)),
    Column("ended_at", DateTime(timezone=True), nullable=False),
    Column("deleted_at", DateTime(timezone=True)),  # null while the Job is there
    Column("rerun_of", Text),  # uid of the Job that it repeats
    Column("revision", BigInteger, nullable=False),  # of the version in `body`
    Column("body", LargeBinary, nullable=False),  # the Job's JSON as it was last, without managedFields; may be packed
    Index("job_records_by_end", "ended_at", "uid"),
    Index("job_records_by_namespace", "namespace", "ended_at", "uid"),
    Index("job_records_by_name", "name", "namespace", "ended_at", "uid"),
    Index("job_records_by_deletion", "deleted_at", postgresql_where=text("deleted_at is not null")),
)

JOB_RECORD_ATTEMPTS = Table(
    "job_record_attempts",
    METADATA,
    Column("pod_uid", Text, primary_key=True),
    Column("job_uid", Text, nullable=False),
    Column("namespace", _PLAIN, nullable=False),
    Column("job", Text, nullable=False),  # its name
    Column("pod", Text, nullable=False),
    Column("index", Integer),
    Column("node", Text, nullable=False),
    Column("created_at", DateTime(timezone=True)),
    Column("started_at", DateTime(timezone=True)),
    Column("ended_at", DateTime(timezone=True)),
    Column("phase", Text, nullable=False),
    Column("exit_code", Integer),
    Column("reason", Text, nullable=False),
    Column("message", Text, nullable=False),  # the termination message, or why the pod ended
    Column("peak_memory_bytes", BigInteger),
    Column("recorded_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column("restart_count", Integer, nullable=False, server_default="0"),  # of all containers, within the pod
    Index("job_record_attempts_by_job", "job_uid", "created_at", "pod_uid"),
    Index("job_record_attempts_by_time", "recorded_at"),
)

# Runs of containers that ended before the last one, because the container was restarted in its pod. They go with the attempt.
JOB_RECORD_RESTARTS = Table(
    "job_record_restarts",
    METADATA,
    Column("pod_uid", Text, primary_key=True),
    Column("container", Text, primary_key=True),
    Column("run", Integer, primary_key=True, autoincrement=False),  # from 0, as the attempt of its log
    Column("started_at", DateTime(timezone=True)),
    Column("ended_at", DateTime(timezone=True)),
    Column("exit_code", Integer, nullable=False),
    Column("reason", Text, nullable=False),
    Column("message", Text, nullable=False),
)

# How many attempts of a Job were too many to be kept.
JOB_RECORD_OMISSIONS = Table(
    "job_record_omissions",
    METADATA,
    Column("job_uid", Text, primary_key=True),
    Column("attempts", Integer, nullable=False),
    Column("recorded_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column("namespace", _PLAIN, primary_key=True, server_default=""),
)

# Events that are no longer objects, those of one Job or pod that went together in one row.
JOB_RECORD_EVENTS = Table(
    "job_record_events",
    METADATA,
    Column("involved_uid", Text, primary_key=True),
    Column("revision", BigInteger, primary_key=True, autoincrement=False),
    Column("bodies", ARRAY(LargeBinary), nullable=False),  # each may be packed
    Column("recorded_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column("namespace", _PLAIN, nullable=False, server_default=""),
    Index("job_record_events_by_time", "recorded_at"),
)

# The revision up to which history is recorded. One row, once the first controllers have recorded something.
JOB_RECORDER = Table(
    "job_recorder",
    METADATA,
    Column(
        "id", Integer, CheckConstraint("id = 1", name="job_recorder_is_one_row"), primary_key=True, autoincrement=False
    ),
    Column("revision", BigInteger, nullable=False),
)

# Messages to webhooks that no receiver has taken yet, and for a while those that none took.
WEBHOOK_DELIVERIES = Table(
    "webhook_deliveries",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("namespace", _PLAIN, nullable=False),
    Column("webhook", _PLAIN, nullable=False),  # name of the Secret
    Column("job", Text, nullable=False),
    Column("job_uid", Text, nullable=False),
    Column("body", LargeBinary, nullable=False),
    Column("recorded_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column("attempts", Integer, nullable=False, server_default="0"),  # that failed
    Column("next_at", DateTime(timezone=True), nullable=False),
    Column("failed_at", DateTime(timezone=True)),  # when it was given up
    Column("error", Text, nullable=False, server_default=""),  # of the last attempt
    Index("webhook_deliveries_by_time", "next_at", postgresql_where=text("failed_at is null")),
    Index("webhook_deliveries_by_webhook", "namespace", "webhook"),
    Index("webhook_deliveries_by_end", "failed_at", postgresql_where=text("failed_at is not null")),
)

# Up to which revision the ends of Jobs have become messages.
WEBHOOK_CURSOR = Table(
    "webhook_cursor",
    METADATA,
    Column(
        "id",
        Integer,
        CheckConstraint("id = 1", name="webhook_cursor_is_one_row"),
        primary_key=True,
        autoincrement=False,
    ),
    Column("revision", BigInteger, nullable=False),
)

"""Job records: what stays of Jobs that have ended, their pods and their events, and up to where history is recorded.

Revision ID: 0010
Revises: 0009
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "job_record_attempts",
        sa.Column("pod_uid", sa.Text(), nullable=False),
        sa.Column("job_uid", sa.Text(), nullable=False),
        sa.Column("namespace", sa.Text(collation="C"), nullable=False),
        sa.Column("job", sa.Text(), nullable=False),
        sa.Column("pod", sa.Text(), nullable=False),
        sa.Column("index", sa.Integer(), nullable=True),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("phase", sa.Text(), nullable=False),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("peak_memory_bytes", sa.BigInteger(), nullable=True),
        sa.Column("recorded_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("pod_uid"),
    )
    op.create_index(
        "job_record_attempts_by_job", "job_record_attempts", ["job_uid", "created_at", "pod_uid"], unique=False
    )
    op.create_index("job_record_attempts_by_time", "job_record_attempts", ["recorded_at"], unique=False)
    op.create_table(
        "job_record_events",
        sa.Column("involved_uid", sa.Text(), nullable=False),
        sa.Column("revision", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("bodies", postgresql.ARRAY(sa.LargeBinary()), nullable=False),
        sa.Column("recorded_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("involved_uid", "revision"),
    )
    op.create_index("job_record_events_by_time", "job_record_events", ["recorded_at"], unique=False)
    op.create_table(
        "job_record_omissions",
        sa.Column("job_uid", sa.Text(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("recorded_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("job_uid"),
    )
    op.create_table(
        "job_recorder",
        sa.Column(
            "id",
            sa.Integer(),
            sa.CheckConstraint("id = 1", name="job_recorder_is_one_row"),
            autoincrement=False,
            nullable=False,
        ),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "job_records",
        sa.Column("uid", sa.Text(), nullable=False),
        sa.Column("namespace", sa.Text(collation="C"), nullable=False),
        sa.Column("name", sa.Text(collation="C"), nullable=False),
        sa.Column("labels", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("result", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("deleted_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("rerun_of", sa.Text(), nullable=True),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("uid"),
    )
    op.create_index(
        "job_records_by_deletion",
        "job_records",
        ["deleted_at"],
        unique=False,
        postgresql_where=sa.text("deleted_at is not null"),
    )
    op.create_index("job_records_by_end", "job_records", ["ended_at", "uid"], unique=False)
    op.create_index("job_records_by_namespace", "job_records", ["namespace", "ended_at", "uid"], unique=False)
    op.execute(
        "create or replace view finished_jobs as select r.namespace, r.name, r.uid, r.result, r.labels, r.created_at, r.started_at, r.ended_at,\n"
        "    r.deleted_at, r.rerun_of, coalesce(o.attempts, 0) as attempts_omitted, convert_from(r.body, 'UTF8')::jsonb as object\n"
        "from job_records r left join job_record_omissions o on o.job_uid = r.uid"
    )
    op.execute(
        "create or replace view job_attempts as select namespace, job, job_uid, pod, pod_uid, index, node, created_at, started_at, ended_at, phase,\n"
        "    exit_code, reason, message, peak_memory_bytes\n"
        "from job_record_attempts"
    )


def downgrade() -> None:
    op.execute("drop view job_attempts")
    op.execute("drop view finished_jobs")
    op.drop_index("job_records_by_namespace", table_name="job_records")
    op.drop_index("job_records_by_end", table_name="job_records")
    op.drop_index(
        "job_records_by_deletion", table_name="job_records", postgresql_where=sa.text("deleted_at is not null")
    )
    op.drop_table("job_records")
    op.drop_table("job_recorder")
    op.drop_table("job_record_omissions")
    op.drop_index("job_record_events_by_time", table_name="job_record_events")
    op.drop_table("job_record_events")
    op.drop_index("job_record_attempts_by_time", table_name="job_record_attempts")
    op.drop_index("job_record_attempts_by_job", table_name="job_record_attempts")
    op.drop_table("job_record_attempts")

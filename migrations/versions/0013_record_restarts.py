"""Records: restarts of containers, and the namespace of what claims to belong to a Job; an index for names.

Revision ID: 0013
Revises: 0012
"""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "job_record_restarts",
        sa.Column("pod_uid", sa.Text(), nullable=False),
        sa.Column("container", sa.Text(), nullable=False),
        sa.Column("run", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("exit_code", sa.Integer(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("pod_uid", "container", "run"),
    )
    op.add_column("job_record_attempts", sa.Column("restart_count", sa.Integer(), server_default="0", nullable=False))
    op.add_column(
        "job_record_events", sa.Column("namespace", sa.Text(collation="C"), server_default="", nullable=False)
    )
    op.execute(
        "update job_record_events set namespace ="
        " coalesce(convert_from(bodies[1], 'UTF8')::json #>> '{metadata,namespace}', '')"
    )
    op.add_column(
        "job_record_omissions", sa.Column("namespace", sa.Text(collation="C"), server_default="", nullable=False)
    )
    op.execute("update job_record_omissions o set namespace = r.namespace from job_records r where r.uid = o.job_uid")
    op.drop_constraint("job_record_omissions_pkey", "job_record_omissions")
    op.create_primary_key("job_record_omissions_pkey", "job_record_omissions", ["job_uid", "namespace"])
    op.create_index("job_records_by_name", "job_records", ["name", "namespace", "ended_at", "uid"], unique=False)
    op.execute(
        "create or replace view finished_jobs as select r.namespace, r.name, r.uid, r.result, r.labels, r.created_at, r.started_at, r.ended_at,\n"
        "    r.deleted_at, r.rerun_of, coalesce(o.attempts, 0) as attempts_omitted, convert_from(r.body, 'UTF8')::jsonb as object\n"
        "from job_records r left join job_record_omissions o on (o.namespace, o.job_uid) = (r.namespace, r.uid)"
    )
    op.execute(
        "create or replace view job_attempts as select namespace, job, job_uid, pod, pod_uid, index, node, created_at, started_at, ended_at, phase,\n"
        "    exit_code, reason, message, peak_memory_bytes, restart_count\n"
        "from job_record_attempts"
    )
    op.execute(
        "create or replace view job_attempt_restarts as select a.namespace, a.job, a.job_uid, a.pod, a.pod_uid, r.container, r.run, r.started_at, r.ended_at,\n"
        "    r.exit_code, r.reason, r.message\n"
        "from job_record_restarts r join job_record_attempts a using (pod_uid)"
    )


def downgrade() -> None:
    op.execute("drop view job_attempt_restarts")
    op.execute("drop view job_attempts")  # a view cannot be replaced by one with fewer columns
    op.execute(
        "create or replace view job_attempts as SELECT job_record_attempts.namespace,\n"
        "    job_record_attempts.job,\n"
        "    job_record_attempts.job_uid,\n"
        "    job_record_attempts.pod,\n"
        "    job_record_attempts.pod_uid,\n"
        "    job_record_attempts.index,\n"
        "    job_record_attempts.node,\n"
        "    job_record_attempts.created_at,\n"
        "    job_record_attempts.started_at,\n"
        "    job_record_attempts.ended_at,\n"
        "    job_record_attempts.phase,\n"
        "    job_record_attempts.exit_code,\n"
        "    job_record_attempts.reason,\n"
        "    job_record_attempts.message,\n"
        "    job_record_attempts.peak_memory_bytes\n"
        "   FROM job_record_attempts;"
    )
    op.execute(
        "create or replace view finished_jobs as SELECT r.namespace,\n"
        "    r.name,\n"
        "    r.uid,\n"
        "    r.result,\n"
        "    r.labels,\n"
        "    r.created_at,\n"
        "    r.started_at,\n"
        "    r.ended_at,\n"
        "    r.deleted_at,\n"
        "    r.rerun_of,\n"
        "    COALESCE(o.attempts, 0) AS attempts_omitted,\n"
        "    (convert_from(r.body, 'UTF8'::name))::jsonb AS object\n"
        "   FROM (job_records r\n"
        "     LEFT JOIN job_record_omissions o ON ((o.job_uid = r.uid)));"
    )
    op.drop_index("job_records_by_name", table_name="job_records")
    op.execute(
        "delete from job_record_omissions o using job_record_omissions other"
        " where o.job_uid = other.job_uid and o.namespace > other.namespace"
    )
    op.drop_constraint("job_record_omissions_pkey", "job_record_omissions")
    op.create_primary_key("job_record_omissions_pkey", "job_record_omissions", ["job_uid"])
    op.drop_column("job_record_omissions", "namespace")
    op.drop_column("job_record_events", "namespace")
    op.drop_column("job_record_attempts", "restart_count")
    op.drop_table("job_record_restarts")

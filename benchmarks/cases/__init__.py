"""All cases, in the order in which they run."""

from benchmarks.cases import (
    api_rate,
    cron_minute,
    engines,
    huge_job,
    idle_memory,
    indexed_job,
    list_pods,
    many_jobs,
    node,
    pod_start,
    resumed_jobs,
    start_up,
    watch_delivery,
    writes,
)

CASES = (
    many_jobs.CASE,
    indexed_job.CASE,
    pod_start.CASE,
    node.CASE,
    engines.CASE,
    start_up.CASE,
    idle_memory.CASE,
    watch_delivery.CASE,
    list_pods.CASE,
    writes.CASE,
    api_rate.CASE,
    huge_job.CASE,
    resumed_jobs.CASE,
    cron_minute.CASE,
)

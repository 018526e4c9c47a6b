"""Controllers: each says what wakes which key and plans it from the mirror; one runner does the rest for all.

What belongs here: a package for each subject, with one module a controller, under Kubernetes' name for it: `batch/` (Jobs,
CronJobs), `apps/` (Deployments, ReplicaSets), `scheduling/`, `nodes/`, `volumes/`, `namespaces/`, `garbage_collection/`,
`auth/`, `retention/`, `webhooks/`, `tracing/`, `metrics/`; here: the `runner` that they share; `manager`, which elects one
process and starts them all; controllers that are alone with their subject; how all keep pods in memory (`interning`).
Decisions lie in `app.plans` and `app.scheduler`.

May import: `app.registry`, `app.store`, and all below. Imported by: `app.main`.
Start reading: `runner`, `batch.jobs`, `scheduling.scheduler`, `manager`.
"""

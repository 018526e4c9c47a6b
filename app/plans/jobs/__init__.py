"""Decisions of the Job controller and the CronJob controller.

What belongs here: which pods a Job creates and deletes, what counts, back-off, podFailurePolicy, successPolicy, failed
indexes, finalizers, status, events and TTL; what is dormant; dependencies, heartbeats and memory by annotations; which Jobs a
CronJob creates and deletes; the Workload and PodGroup of a gang.

May import: `app.plans.admission`, `app.plans.plan`, `app.kinds`, `app.machinery`. Called by: `app.controllers.batch.jobs`,
`.cronjobs`.
Start reading: `job_snapshot` (what a decision is made from, and what is decided), then `job` (from one to the other).
"""

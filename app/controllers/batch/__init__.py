"""The Job controller, the CronJob controller, and what they keep beside the mirror.

What belongs here: `jobs` and `cronjobs`, one reconciler each; `job_dependents` (which Jobs wait for a Job), `gang_index`
(Workloads and PodGroups of a Job), `job_pending_pods` (events for pods that do not start), `refused_objects` (tried again when
a quota changes), `stored_jobs` (what the mirror leaves out), `job_expiry` (TTLs of these), `creation_review` (admission
policies for what these controllers create). What is decided about a Job (backoff, policies, indexes, finalizers) lies in
`app.plans.jobs`.

May import: `app.controllers` (`planned_write`), `app.registry`, `app.store`, and all below.
Imported by: `app.controllers.manager`.
Start reading: `jobs`, then `app.plans.jobs.job`.
"""

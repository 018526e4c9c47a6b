"""What stays when something has ended, and for how long: records of Jobs, logs of containers, Events.

What belongs here: periodic tasks (`app.registry.periodic_task`) of the leader: `job_recorder`, `log_retention`,
`event_retention`, `dormant_objects` (finished Jobs that the mirror leaves out). Old versions of objects are deleted by
`app.store.compaction`; Jobs by their TTL in `app.plans.jobs.ttl_after_finished`.

May import: `app.registry`, `app.store`, and all below. Imported by: `app.controllers.manager`.
Start reading: `event_retention` (the smallest), `job_recorder`, then `app.plans.jobs.job_record`.
"""

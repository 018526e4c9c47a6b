"""Kinds of the group batch: Job and CronJob.

What belongs here: their fields, defaults, validation and status validation; cron expressions; the notation of completion
indexes. What the Job controller decides lies in `app.plans.jobs`.

May import: `app.machinery` and other kinds. Imported by: everything above kinds.
Start reading: `job` and `cronjob` (the kinds), `job_schema` (fields), `cron_schedule`.
"""

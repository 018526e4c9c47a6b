"""Decisions of the Job controller and the CronJob controller.

What belongs here: which pods a Job starts and stops, what counts, back-off, pod failure policy, success policy, failed
indexes, finalizers, status, events and TTL; which Jobs a CronJob starts and deletes; the Workload and PodGroup of a gang.

May import: `app.plans.admission`, `app.plans.plan`, `app.kinds`, `app.machinery`. Called by: `app.controllers.jobs`, `.cronjobs`.
Start reading: `job` (one decision, from top to bottom), then `job_pods`, `counting`, `scaling`, `finish_conditions`.
"""

"""Admission: what a write is judged by before it is stored, kept in memory, so that most writes ask no database.

What belongs here: `admission` (defaults, LimitRanges, ResourceQuotas, Pod Security), `policy_review` (ValidatingAdmissionPolicies
in force), `policy_evaluator` with `policy_process` (CEL, in a process of its own), `policy_cache` (this process's copy of the
kinds that are rules), `namespace_pods` (pods that a stricter level would refuse), `requester` (who asks),
`attributes` (what is written), `webhook_review` (admission webhooks).
What is decided lies in `app.plans.admission`.

May import: `app.registry`, `app.store`, `app.plans`, `app.kinds`, `app.machinery`.
Imported by: `app.registry`, `app.api`, `app.controllers`.
Start reading: `admission`, `policy_review`.
"""

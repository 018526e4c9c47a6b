"""Admission webhooks: which ones a write concerns, what is sent to them, and what follows from their answers. Pure.

What belongs here: `matching` (which webhooks apply), `admission_review` (the request, and how the response is read), `outcome`
(refusals and what is noted for audit). `app.registry.admission.webhook_review` makes the calls.

May import: `app.kinds`, `app.plans`, `app.machinery`. Imported by: `app.registry`, `app.controllers`.
Start reading: `matching`.
"""

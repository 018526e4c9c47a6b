"""Admission policies: which ValidatingAdmissionPolicies apply to a request, what their expressions say, and what follows. Pure.

What belongs here: `matching` (which policies apply), `evaluation` (the expressions, run in a process of its own by
`app.registry.admission.policy_process`), `outcome` (refusal, warnings and audit annotations).

May import: `app.kinds`, `app.machinery`. Imported by: `app.registry`.
Start reading: `matching`, `outcome`.
"""

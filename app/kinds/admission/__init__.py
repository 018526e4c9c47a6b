"""Kinds of admission policies (admissionregistration.k8s.io).

What belongs here: ValidatingAdmissionPolicy, whose rules are CEL, and ValidatingAdmissionPolicyBinding, which puts one in force.

May import: `app.machinery` and other kinds. Imported by: everything above kinds.
Start reading: `validating_admission_policy`. Policies are applied by `app.plans.admission.policies`.
"""

"""Kinds of admission policies and admission webhooks (admissionregistration.k8s.io).

What belongs here: ValidatingAdmissionPolicy, whose rules are CEL, and ValidatingAdmissionPolicyBinding, which puts one in force;
MutatingWebhookConfiguration and ValidatingWebhookConfiguration, with what both share (`webhook_defaults`,
`webhook_client_config`, `rule_validation`).

May import: `app.machinery` and other kinds. Imported by: everything above kinds.
Start reading: `validating_admission_policy`. Policies are applied by `app.plans.admission.policies`,
webhooks by `app.plans.admission.webhooks`.
"""

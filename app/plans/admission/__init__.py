"""Decisions about new objects: what Kubernetes' admission plugins and its RBAC authorizer decide.

What belongs here: admission of pods (LimitRanger, service accounts, priority), Pod Security (`pod_security/`), admission policies
(`policies/`), admission webhooks (`webhooks/`), resource quota, pauses between retries of what was refused, and RBAC rules. Pure:
`app.registry.admission.policy_cache` and `.rbac_cache` hold the rules that callers pass in.

May import: `app.kinds`, `app.machinery`. Called by: `app.registry`, `app.plans.jobs`, `app.plans.deployments`.
Start reading: `pod_admission`, `resource_quota`, `rbac`.
"""

"""Decisions about new objects: what Kubernetes' admission plugins and its RBAC authorizer decide.

What belongs here: defaults and limits of pods (LimitRanger), priority, resource quota, service account tokens, and what RBAC
rules allow. Pure: `app.registry.admission` and `app.registry.policy_cache` hand in the rules.

May import: `app.kinds`, `app.machinery`. Called by: `app.registry`, `app.plans.jobs`.
Start reading: `pod_admission`, `resource_quota`, `rbac`.
"""

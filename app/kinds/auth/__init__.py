"""Kinds of identities and rights.

What belongs here: Role, ClusterRole and their bindings (rbac.authorization.k8s.io), and what the reviews of
authentication.k8s.io and authorization.k8s.io carry, which are answered and never stored.

May import: `app.machinery` and other kinds. Imported by: everything above kinds.
Start reading: `rbac` (rules, subjects), `role`, `authorization`. Rules are evaluated by `app.plans.admission.rbac`.
"""

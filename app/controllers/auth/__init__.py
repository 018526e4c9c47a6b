"""Controllers of identities and rights: certificates that are asked for, and roles that are made of others.

What belongs here: `certificate_signing` (CertificateSigningRequests: signing, cleaning up), `authority_key` (what it signs with),
`clusterrole_aggregation` (roles with an `aggregationRule`). Who may do what is decided by `app.plans.admission.rbac`.

May import: `app.controllers` (`planned_write`), `app.registry`, `app.store`, and all below.
Imported by: `app.controllers.manager`, `app.main`.
Start reading: `certificate_signing`, then `app.plans.certificate_signing`.
"""

"""Authentication, authorization, certificates and tokens.

What belongs here: the user of a request, impersonation, RBAC escalation, what a node may change about itself; tokens and the
files that hold them; the authority that signs the API's certificate.

May import: `app.registry`, `app.api.http`, `app.api.openapi.meta`. Imported by: the rest of `app.api`, `app.main`.
Start reading: `authenticator`, `tokens`, `certificates`.
"""

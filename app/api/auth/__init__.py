"""Authentication, authorization, certificates and tokens.

What belongs here: the user of a request, by a token, an identity provider (`oidc`) or a client certificate; impersonation, RBAC
escalation, what a node may change about itself; tokens and the files that hold them; the authority of the API's certificate.

May import: `app.registry`, `app.api.http`, `app.api.openapi.meta`. Imported by: the rest of `app.api`, `app.main`.
Start reading: `authenticator`, `tokens`, `oidc`, `client_certificates`, `certificates`.
"""

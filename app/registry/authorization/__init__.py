"""Authorization: what a user or a node may do, from what is stored, without asking the database for each request.

What belongs here: `rbac_cache` (what each user may), `node_authorizer` (what the agent of a node may read), `default_roles`
(roles and bindings of a fresh cluster). The rules of RBAC lie in `app.plans.admission.rbac`; who a request is from, and that each
request is authorized, in `app.api.auth`.

May import: `app.registry` (`registry`, `codec`), `app.plans`, `app.kinds`, `app.machinery`.
Imported by: `app.registry`, `app.api`.
Start reading: `rbac_cache`.
"""

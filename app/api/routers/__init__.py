"""Endpoints of our own, as FastAPI routers: what Kubernetes' API does not have.

What belongs here: `agents` (reports and calls of agents), `join` (join tokens, credentials, tokens), `kept_logs` (logs of pods
that may be gone), `history` (records of Jobs that may be gone), `signin` and `ui` (the page's sign-in and files), `health`,
`metrics`, and `docs`, which describes the others. Each declares its paths, parameters, rights and shapes.

May import: `app.api.dependencies`, `app.api.struct_route`, the packages of `app.api`, `app.registry`.
Imported by: `app.api.app`. Start reading: `kept_logs` (a query, rights, two shapes), then `agents`.
"""

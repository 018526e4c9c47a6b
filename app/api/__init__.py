"""Speaks HTTP: Kubernetes' paths, parameters and media types on the one side, `app.registry` on the other.

What belongs here: `http/` (connections, bodies, errors), `auth/` (who asks, and tokens), `resources/` (verbs of Kubernetes'
paths), `streams/` (watch, logs, exec, port-forward), `openapi/`, `routers/` (endpoints of our own); here: the FastAPI application
with its middleware, dependencies and routes, the server, and the data folder.

May import: `app.registry` and all below but `app.store`. Imported by: `app.main`.
Start reading: `app` (the FastAPI application), `routers` (our endpoints), `resources.kubernetes` (every Kubernetes path),
`auth.authenticator`.
"""

"""Controllers: each says what wakes which key and plans it from the mirror; one runner does the rest for all.

What belongs here: one module a controller, under Kubernetes' name for it; the runner that they share; `manager`, which
elects one process and starts them all. Decisions lie in `app.plans` and `app.scheduler`.

May import: `app.registry`, `app.store`, and all below. Imported by: `app.main`.
Start reading: `runner`, `jobs`, `scheduler`, `manager`.
"""

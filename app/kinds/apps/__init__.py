"""Kinds of the group apps: Deployment and ReplicaSet, which keep servers running.

What belongs here: their fields, defaults, validation and tables. What their controllers decide lies in
`app.plans.deployments`.

May import: `app.machinery` and other kinds. Imported by: everything above kinds.
Start reading: `deployment` and `replicaset` (the kinds), `replica_validation` (what both have in common).
"""

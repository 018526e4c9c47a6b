"""Controllers of what keeps running: Deployments and ReplicaSets.

What belongs here: `deployments` (ReplicaSets of a Deployment), `replica_sets` (pods of a ReplicaSet). Decisions lie in
`app.plans.deployments`.

May import: `app.controllers` (`planned_write`, `batch`), `app.registry`, `app.store`, and all below.
Imported by: `app.controllers.manager`, `app.main`.
Start reading: `replica_sets`, then `app.plans.deployments.replica_set`.
"""

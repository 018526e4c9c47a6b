"""Decisions about what keeps running: a Deployment about its ReplicaSets, a ReplicaSet about its pods.

What belongs here: how many pods there should be of which template, their replacement in steps, revisions, and what the status
says of it. Pure, and one after the other: a Deployment's decision reads what its ReplicaSets report of their pods.

May import: `app.kinds`, `app.machinery`, `app.plans.admission`. Called by: `app.controllers.apps`.
Start reading: `replica_set`, `deployment`, then `rollout` (the steps).
"""

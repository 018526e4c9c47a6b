"""Decisions about persistent storage: what claims are bound to, who makes volumes, and what becomes of them.

What belongs here: kube-controller-manager's persistentvolume controllers, the provisioners' decisions, and what kube-scheduler's
plugin VolumeBinding decides for one pod. Folders are made and removed by agents (`app.agent.volumes.claims`).

May import: `app.kinds`, `app.machinery`, `app.plans`. Called by: `app.controllers.volumes.persistent_volumes`, the scheduler.
Start reading: `binding`, `claims` (syncClaim), `volumes` (syncVolume), `pod_volumes`.
"""

"""Persistent storage: claims and volumes are bound, made and released.

What belongs here: `persistent_volumes` (the controller: binding, provisioning, reclaim, protection), `volume_index` (which
claims, volumes and pods belong together, kept as objects change). The claims of pods in a round of the scheduler are bound by
`app.controllers.scheduling.volume_binding`; the decisions lie in `app.plans.volumes`.

May import: `app.controllers` (`planned_write`), `app.registry`, `app.store`, and all below.
Imported by: `app.controllers.manager`, `app.controllers.scheduling`.
Start reading: `persistent_volumes`, then `app.plans.volumes.binding`.
"""

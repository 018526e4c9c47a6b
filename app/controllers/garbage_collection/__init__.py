"""Garbage collection: dependents go when their owners are gone, in the foreground, in the background, or not at all.

What belongs here: `garbage_collector` (the controller), `owner_graph` (owners and dependents of all kinds by UID, over metadata).
The decisions lie in `app.plans.garbage_collection`.

May import: `app.controllers` (`planned_write`), `app.registry`, `app.store`, and all below.
Imported by: `app.controllers.manager`.
Start reading: `garbage_collector`, then `app.plans.garbage_collection`.
"""

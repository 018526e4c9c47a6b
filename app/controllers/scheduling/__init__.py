"""The scheduler as a controller: rounds over the mirror, and the writes that carry a round out.

What belongs here: `scheduler` (rounds), `binding_writes` (pods to nodes), `preemption_writes` (evictions, nominated nodes),
`volume_binding` (claims of placed pods), `local_queues` (status of LocalQueues, messages to what waits in them).
What a round decides (filters, scores, queue, preemption) lies in `app.scheduler`, which is pure.

May import: `app.scheduler`, `app.controllers` (`planned_write`, volumes, metrics), `app.registry`, `app.store`, and all
below.
Imported by: `app.controllers.manager`.
Start reading: `scheduler`, then `app.scheduler.scheduling_round`.
"""

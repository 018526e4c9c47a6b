"""The node itself: registration, lease, pressure, eviction, image garbage collection, devices, shutdown.

What belongs here: an agent's work for its machine rather than for one pod; how it joins, and follows the API's authority. The
decisions are in `app.plans.kubelet` and `app.plans.nodes`.

May import: `app.runtimes`, `app.client`, `app.plans`. Imported by: `app.agent.agent`, `app.agent.pods`.
Start reading: `node`, `lease`, `eviction_manager`, `image_gc_manager`.
"""

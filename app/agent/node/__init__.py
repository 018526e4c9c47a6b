"""The node itself: registration, lease, pressure, eviction, image garbage collection, devices, shutdown.

What belongs here: what an agent does for its machine rather than for one pod, and how it joins and whom it trusts. What is
decided lies in `app.plans.kubelet` and `app.plans.nodes`.

May import: `app.runtimes`, `app.client`, `app.plans`. Imported by: `app.agent.agent`, `app.agent.pods`.
Start reading: `node`, `lease`, `eviction_manager`, `image_gc_manager`.
"""

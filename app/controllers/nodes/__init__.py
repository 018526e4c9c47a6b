"""Controllers of Nodes: what becomes of a node that is lost, and the addresses that a node gives its pods.

What belongs here: `node_lifecycle` (conditions, taints, eviction of pods from lost nodes), `node_ipam` (pod CIDRs).
The decisions lie in `app.plans.nodes`; what the node itself does lies in `app.agent.node`.

May import: `app.controllers` (`planned_write`), `app.registry`, `app.store`, and all below.
Imported by: `app.controllers.manager`.
Start reading: `node_lifecycle`, then `app.plans.nodes.node_lifecycle`.
"""

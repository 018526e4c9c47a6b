"""Decisions about nodes: lost nodes, taints and tolerations, node selectors.

What belongs here: the node lifecycle controller's decisions, the timing that it shares with agents (when a node that is cut
off must have stopped a pod), and whether a pod tolerates or selects a node.

May import: `app.kinds`, `app.machinery`. Called by: `app.controllers.nodes.node_lifecycle`, the scheduler, agents.
Start reading: `node_lifecycle`, `node_loss_timing`.
"""

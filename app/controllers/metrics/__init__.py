"""Numbers of the controllers: what their queues, the scheduler and the leader's mirror tell Prometheus.

What belongs here: `workqueue` (each runner's queue), `scheduler` (waiting pods, rounds, capacity), `state` (Jobs, pods and
nodes, as kube-state-metrics counts them), `dormant_counts` (of those that the mirror leaves out). Each makes its instruments
in the registry of metrics of the process; nothing here decides.

May import: `app.metrics`, `app.scheduler`, `app.kinds`, `app.store`. Imported by: `app.controllers`. Start reading: `state`.
"""

"""The node agent, as a kubelet: runs the pods that are bound to its nodes. A client of the API that dials out.

What belongs here: `pods/` (the pod workers: start, stop, probe, report), `node/` (registration, lease, pressure, eviction,
devices), `volumes/`; here: the agent as a whole, its configuration, shipping of logs, exec and port-forward, the clock.

May import: `app.runtimes`, `app.client`, `app.plans`, `app.kinds`, `app.machinery`; never the store.
Start reading: `config`, `agent`, `pods.pods`, `node.lease`.
"""

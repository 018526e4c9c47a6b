"""Network of the node's pods: DNS for Services and pods, and the way to the API by its name.

What belongs here: the DNS responder (`dns_responder`), what it answers from (`service_names`, `service_lookup`, `dns_upstream`),
the relay behind `kubernetes.default.svc` (`api_relay`), and `cluster_dns`, which runs them for an agent; the pod network between
nodes (`pod_network`, `routes`).

May import: `app.agent.clock`, `app.client`, `app.machinery`. Imported by: `app.agent`, `app.agent.pods`.
Start reading: `cluster_dns`, `service_names`.
"""

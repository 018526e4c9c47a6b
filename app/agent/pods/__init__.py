"""Pods on their node, from the watch to the last report.

What belongs here: the loop that plans and acts for each pod, starts and stops of containers, images, environment, probes,
lifecycle hooks, events and status reports; deadlines of pods whose node's lease expired.

May import: `app.agent.volumes`, `app.runtimes`, `app.client`, `app.plans`. Imported by: `app.agent.agent`.
Start reading: `pods` (the loop), `pod_worker` (state of one pod), `starts`, `lease_expiry`.
"""

"""Pods on their node, from the watch to the last report.

What belongs here: the loop that plans and acts for each pod, starts and stops of containers, images, environment, probes,
lifecycle hooks, events and status reports; deadlines of pods whose node's lease expired.

May import: `app.agent.volumes`, `app.runtimes`, `app.client`, `app.plans`. Imported by: `app.agent.agent`.
Start reading: `pods` (what wakes a pod), `pod_sync` (its loop), `pod_worker` (its state), `starts`, `lease_expiry`.
"""

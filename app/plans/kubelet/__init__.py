"""Decisions of a node about its pods: what the kubelet decides in Kubernetes.

What belongs here: start, stop or wait (`sync_pod`), restarts and their back-off, probe results, pod status and events, image
pulls, devices, eviction under node pressure, image garbage collection.

May import: `app.plans.nodes`, `app.kinds`, `app.machinery`. Called by: `app.agent`, and by the scheduler for devices.
Start reading: `sync_pod`, `container_history`, `pod_status`.
"""

"""What agents report, and what they ask for beyond objects: many pods, volumes or nodes in one request.

What belongs here: reports: `status_reports` (of pods), `kubelet_events`, `node_usage`, `removed_volumes`; answers from memory:
`service_cache` (for DNS), `pod_network_cache` (for routes). Paths and bodies of these are in `app.client.protocol`.

May import: `app.registry`, `app.client.protocol`, `app.store`, `app.plans`, `app.kinds`, `app.machinery`.
Imported by: `app.api`; `app.registry.registry`, which keeps the caches.
Start reading: `status_reports`.
"""

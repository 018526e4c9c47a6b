"""Pods, and what a pod's specification is made of.

What belongs here: the Pod and PodTemplate kinds, containers, probes, volumes, security contexts, affinity; their defaults,
validation and warnings. Decisions about pods lie in `app.plans` and `app.scheduler`.

May import: `app.machinery` and other kinds. Imported by: everything above kinds.
Start reading: `pod` (the kind), `pod_schema` (its fields), `pod_validation`, `pod_defaults`.
"""

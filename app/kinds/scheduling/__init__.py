"""Kinds that say how pods are scheduled.

What belongs here: PriorityClass, PodGroup and Workload (scheduling.k8s.io, groups as in Kubernetes 1.37) and LocalQueue
(jobplane.dev). The decisions lie in `app.scheduler` and `app.plans.jobs.workloads`.

May import: `app.machinery` and other kinds. Imported by: everything above kinds.
Start reading: `priorityclass`, `podgroup`, `localqueue`.
"""

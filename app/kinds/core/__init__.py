"""Kinds of the core group, and small kinds of other groups that all clusters have.

What belongs here: Node, Namespace, ConfigMap, Secret, Service, ServiceAccount, Event, Lease, LimitRange, ResourceQuota,
EndpointSlice, PodDisruptionBudget, and the answers of metrics.k8s.io. One module a kind: validation, columns,
`KIND`. The structs are in the `*_schema` modules, which are generated.

May import: `app.machinery` and other kinds. Imported by: everything above kinds.
Start reading: `configmap` (the smallest kind), `node`, `resourcequota`.
"""

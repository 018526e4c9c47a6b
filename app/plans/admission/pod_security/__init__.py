"""Pod Security: the Pod Security Standards of Kubernetes, privileged, baseline and restricted, by labels of the namespace. Pure.

What belongs here: what the labels of a namespace ask for (`namespace_policy`), the controls of the published table
(`baseline`, `restricted`), and what follows for an object (`review`).

May import: `app.kinds`, `app.machinery`. Imported by: `app.plans.admission.pod_admission`, `app.registry`.
Start reading: `namespace_policy`, then `review`.
"""

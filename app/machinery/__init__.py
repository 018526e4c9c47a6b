"""API machinery: what all kinds share, and no kind in particular. Kubernetes has it in `k8s.io/apimachinery`.

What belongs here: object metadata (`meta_schema`) and the `Kind` record (`base`), decoding of JSON and YAML, quantities,
selectors, names, conditions, patches, server-side apply with `managedFields`, API errors, feature gates. All of it is pure.

May import: nothing of Jobplane. Imported by: every other package.
Start reading: `base` (what an object and a kind are), `decode` (bytes to objects), `server_side_apply`.
"""

"""API machinery: what all kinds share, and no kind in particular. Kubernetes has it in `k8s.io/apimachinery`.

What belongs here: the `Kind` record (`base`) and the `Struct` of every part of an object (`struct`, `shape`); `meta/` (metadata,
conditions), `decoding/` (JSON and YAML), `patch/`, `apply/` (server-side apply, `managedFields`); here: API errors, selectors,
quantities, durations, names, feature gates, CEL. All of it is pure.

May import: nothing of Jobplane. Imported by: every other package.
Start reading: `base` (what an object and a kind are), `decoding.decode` (bytes to objects), `apply.server_side_apply`.
"""

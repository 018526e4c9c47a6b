"""Server-side apply and `metadata.managedFields`: what Kubernetes has in `util/managedfields` and `structured-merge-diff`.

What belongs here: `server_side_apply` (an apply from beginning to end, with its conflicts), `apply_validation` (against the
kind), `structured_merge` (the merge itself), `topology` (how each part of a kind merges), `managed_fields` (owners after any
write), `field_ownership` and `field_sets` (FieldsV1).

May import: `app.machinery` (`base`, `shape`, `errors`, `decoding`, `meta`). Imported by: `app.registry`, `app.api`.
Start reading: `server_side_apply`, `managed_fields`.
"""

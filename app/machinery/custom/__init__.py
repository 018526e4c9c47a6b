"""Custom objects: what a structural schema (apiextensions.k8s.io) says about an object, compiled.

What belongs here: `custom_object` (an object that is a document), `structural_schema` (the compiled tree), `completion` (prune,
fill defaults), `checks` (validate; `formats`, `patterns`, `list_checks`), `correlation` (what did not change), `rules` (CEL),
`schema_shape` (the tree as `Shape` and `Topology`), `object_body` (decodes objects of any kind), `json_path`.

May import: `app.machinery`. Imported by: `app.kinds.apiextensions`, `app.machinery.object_codec` and above.
Start reading: `structural_schema`.
"""

"""CustomResourceDefinitions (apiextensions.k8s.io), and the kinds that are made of them.

What belongs here: `custom_resource_definition` (the kind), `definition_validation`, `structural_rules` (whether a schema is
structural; `schema_keywords`), `definition_conditions` (names, Established), `custom_kind` (the `Kind` records of a definition),
`printer_columns`.

May import: `app.machinery` and other kinds. Imported by: everything above kinds.
Start reading: `custom_kind`.
"""

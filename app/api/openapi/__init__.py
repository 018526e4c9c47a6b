"""OpenAPI documents, generated from the kinds.

What belongs here: `/openapi/v3` with one document for each group and version, and `/openapi/v2` for older clients. The files
in `openapi/` of the repository are checked against these.

May import: `app.api.resources` (discovery), `app.kinds`. Imported by: `app.api.resources.kubernetes`.
Start reading: `v3`, `paths`, `schemas`.
"""

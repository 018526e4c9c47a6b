"""Patches of the content types `application/json-patch+json`, `merge-patch+json` and `strategic-merge-patch+json`.

What belongs here: `json_patch` (RFC 6902, and merge patches of RFC 7386), `strategic_merge_patch` (lists merged by key). Both
work on plain documents, and know no kind. An apply patch is none of these: see `app.machinery.apply`.
Which content type is which patch, and what is done with the outcome, says `app.api.resources.patch`.

May import: `app.machinery` (`errors`, `shape`). Imported by: `app.api`, `app.plans`.
Start reading: `json_patch`, `strategic_merge_patch`.
"""

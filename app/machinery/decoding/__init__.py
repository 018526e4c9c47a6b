"""Decoding: bytes of a request to documents, and documents to structs, with Kubernetes' messages.

What belongs here: `decode` (the way in: any failure is a 400), `conversion` (the slow half, which finds the words for what is
wrong), `json_document` and `yaml_document` (text to plain values, within bounds).

May import: `app.machinery` (`base`, `shape`, `errors`, `quantity`). Imported by: the store and all above, `app.plans`.
Start reading: `decode`.
"""

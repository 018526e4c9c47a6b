"""Encryption of Secrets at rest: envelope encryption, with master keys that the database never sees.

What belongs here: `encryption` (data keys; bodies of Secrets), `master_keys` (what wraps data keys: a file, or a command that
asks a key service), `reencryption` (brings what is stored under the active key).

May import: `app.store.errors`, cryptography. Imported by: `app.store`, `app.main`, `app.controllers`.
Start reading: `encryption`.
"""

"""Packing of stored versions: an object's JSON and its selector indexes in one short block.

What belongs here: `packing` (the writer packs, readers unpack) and the dictionaries, one a file, which are never changed: what
was packed with one can be read only with it. Postgres unpacks by the function `version_part` of `app.store.schema`, with the same
dictionary.

May import: the standard library and lz4. Imported by: the rest of the store. Start reading: `packing`.
"""

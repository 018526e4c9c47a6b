"""Runs containers of images without an engine: skopeo pulls, overlayfs stacks the layers, crun runs, our shim watches.

What belongs here: the store of images and the program that unpacks a layer, the OCI configuration of a container, the fork server
of which pods' sandboxes and shims are copies, commands in containers. Adoption,
logs and attach are those of `app.runtimes.process`.

May import: `app.runtimes.base`, `.process`, `.engine` (numbers and errors), `.linux`. Imported by: `app.runtimes`.
Start reading: `runtime`, `config`, `image_store`, `fork_server`.
"""

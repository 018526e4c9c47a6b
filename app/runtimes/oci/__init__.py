"""Runs containers of images without an engine: skopeo pulls, overlayfs stacks the layers, crun runs, our shim watches.

What belongs here: the store of images and the program that unpacks a layer, the OCI configuration of a container, pods'
sandboxes, commands in containers. Shim, adoption, logs and attach are those of `app.runtimes.process`.

May import: `app.runtimes.base`, `.process`, `.engine` (numbers and errors), `.linux`. Imported by: `app.runtimes`.
Start reading: `runtime`, `config`, `image_store`, `crun.sh`.
"""

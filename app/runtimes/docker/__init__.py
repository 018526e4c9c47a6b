"""Runs containers by a Docker Engine, or by Podman as far as its socket goes.

What belongs here: the engine's HTTP API, sandboxes, containers, images, logs of its `local` driver, exec; and the recovery of
pods whose engine was killed (`recovery`, by the protocol of `app.runtimes.engine.recovery`).

May import: `app.runtimes.base`, `.engine`, `.logs`, `.linux`. Imported by: `app.runtimes` (`make_runtime`).
Start reading: `runtime`, `engine` (calls), `sandboxes`, `containers`, `recovery`.
"""

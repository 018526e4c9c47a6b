"""Runs containers by an engine that speaks CRI: containerd or CRI-O.

What belongs here: the gRPC connection, sandboxes, containers, images, events, exec; and the recovery of pods whose engine was
killed (`recovery`, by the protocol of `app.runtimes.engine.recovery`).

May import: `app.runtimes.base`, `.engine`, `.logs`, `.linux`. Imported by: `app.runtimes` (`make_runtime`).
Start reading: `runtime`, `engine` (calls), `sandboxes`, `containers`, `recovery`.
"""

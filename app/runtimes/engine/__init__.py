"""What the runtimes that drive a container engine (cri, docker) have in common.

What belongs here: the container cache and its events, files on disk, output past an engine that may die, and the protocol by
which pods are recovered from an engine that was killed (`recovery`; implemented in `cri.recovery` and `docker.recovery`).

May import: `app.runtimes.base`, `.logs`, `.linux`. Imported by: `app.runtimes.cri`, `app.runtimes.docker`.
Start reading: `runtime`, `containers`, `recovery`, `outputs`.
"""

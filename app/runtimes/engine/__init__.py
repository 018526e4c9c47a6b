"""What the runtimes that drive a container engine (cri, docker) have in common.

What belongs here: what is known of containers and who is told of changes, files on disk, output past an engine that may die,
shims, and the removal of cgroups that an engine has lost track of.

May import: `app.runtimes.base`, `.logs`, `.linux`. Imported by: `app.runtimes.cri`, `app.runtimes.docker`.
Start reading: `runtime`, `containers`, `outputs`.
"""

"""Runs containers as plain processes of this host: no engine, no images, no set-up. The default on Linux.

What belongs here: the shim and what it leaves on disk, the launch with bubblewrap and setpriv, logs, exec and attach, usage.
A container outlives its agent: the next one finds it by its folder.

May import: `app.runtimes.base`, `.logs`, `.linux`, `.simulated` never. Imported by: `app.runtimes` (`make_runtime`).
Start reading: `runtime`, `launch`, `files`, `shim.sh`.
"""

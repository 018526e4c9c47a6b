"""The kernel's interfaces that runtimes need: cgroups, network namespaces, the process table.

What belongs here: cgroups of containers and where an agent may make them, namespaces entered from outside, processes and the
peers of Unix sockets, where folders go on a disk, removal of those that containers have written to.

May import: logging, and the limits in `app.runtimes.base`; nothing else of Jobplane.
Imported by: the runtimes, `app.agent.volumes`.
Start reading: `cgroups`, `cgroup_roots`, `process_table`.
"""

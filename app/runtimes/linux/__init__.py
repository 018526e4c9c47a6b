"""The kernel's interfaces that runtimes need: cgroups, network namespaces, socket peers.

What belongs here: cgroups of containers and where an agent may make them, namespaces entered from outside, who is at the other
end of a Unix socket, removal of folders that containers have written to.

May import: nothing of Jobplane but its settings of limits. Imported by: the runtimes, `app.agent.volumes`.
Start reading: `cgroups`, `cgroup_roots`.
"""

"""Volumes on the node: made before a pod starts, kept up to date, removed after it.

What belongs here: emptyDir, hostPath, configMap, secret, downwardAPI and projected volumes, subPath, and the tokens of service
accounts that projected volumes hold.

May import: `app.client`, `app.runtimes` (removal of folders), `app.kinds`. Imported by: `app.agent.pods`, `app.agent.node`.
Start reading: `volumes`, `sources`, `files`.
"""
